-- The roles of relais and all that they may do, as one transaction. A role that may create roles and
-- schemas runs it before the first migration, for the roles and the schema, and again after each one,
-- for the rights; a superuser can. It may be run any number of times.
--
--   owner     owns the tables: `relais migrate`
--   runtime   reads and changes rows: `relais run` and every other command
--   producer  adds messages to the outbox, in the transaction of a service
--   consumer  adds received messages to the inbox, marks handled ones, writes dead letters
--   publisher claims and settles messages of destinations that relais does not serve
--   reader    reads everything, payloads too: `relais status`, `top`, `list`, `show`, `explain`
--
-- None can log in until an administrator allows it: ALTER ROLE ":runtime" LOGIN PASSWORD '...'.
BEGIN;

DO $roles$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY[':owner', ':runtime', ':producer', ':consumer', ':publisher', ':reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I', role);
        END IF;
    END LOOP;
END
$roles$;

CREATE SCHEMA IF NOT EXISTS ":schema";
-- Before PostgreSQL 15 every role may create tables in the schema public.
REVOKE CREATE ON SCHEMA ":schema" FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA ":schema" TO ":owner";
GRANT USAGE ON SCHEMA ":schema" TO ":runtime", ":producer", ":consumer", ":publisher", ":reader";

-- Rights on relais's own tables and no others. What was granted before and is not listed is taken away.
DO $rights$
DECLARE
    line record;
BEGIN
    FOR line IN
        SELECT role, format('%I.%I', ':schema', name) AS name, rights
        FROM (VALUES
            (':runtime', 'relais_schema', 'SELECT'),
            (':runtime', 'relais_inbox', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_outbox', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_waiting', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_outbox_position', 'SELECT, INSERT, UPDATE'),
            (':runtime', 'relais_pending', 'SELECT'),
            (':runtime', 'relais_sent', 'SELECT'),
            (':runtime', 'relais_handled', 'SELECT, INSERT, DELETE'),
            (':runtime', 'relais_version', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_dead_letter', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_parked_key', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_lane', 'SELECT, INSERT, UPDATE'),
            (':runtime', 'relais_lease', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_worker', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_bulk_job', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_control', 'SELECT, INSERT, UPDATE'),
            (':runtime', 'relais_report', 'SELECT, INSERT, UPDATE, DELETE'),
            -- Encrypted, and still not for readers.
            (':runtime', 'relais_credential', 'SELECT, INSERT, UPDATE'),
            (':runtime', 'relais_process', 'SELECT, INSERT, UPDATE, DELETE'),
            -- What happened and who decided is added to; only cleanup takes away, with its process.
            (':runtime', 'relais_process_log', 'SELECT, INSERT, DELETE'),
            (':runtime', 'relais_audit', 'SELECT, INSERT'),
            (':runtime', 'relais_timer', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_attempt', 'SELECT, INSERT, DELETE'),
            (':runtime', 'relais_source_position', 'SELECT, INSERT, UPDATE'),
            (':runtime', 'relais_adopted_change', 'SELECT, INSERT, UPDATE, DELETE'),
            (':runtime', 'relais_inbox_id_seq', 'SELECT'),
            (':runtime', 'relais_outbox_id_seq', 'SELECT'),
            (':runtime', 'relais_audit_id_seq', 'SELECT'),
            (':runtime', 'relais_bulk_job_moved_seq', 'SELECT'),
            -- The columns a message is made of, and what INSERT ... ON CONFLICT ... RETURNING reads.
            (':producer', 'relais_outbox',
             'INSERT (message_id, category, aggregate_type, aggregate_id, event_type, event_version, '
             || 'payload, headers, destination, msg_key, next_attempt_at, causation_id, '
             || 'correlation_id), SELECT (id, message_id, destination)'),
            -- Whether a message was sent before, without its payload.
            (':producer', 'relais_sent', 'SELECT'),
            -- The columns of a received message, and what INSERT ... ON CONFLICT ... RETURNING reads.
            (':consumer', 'relais_inbox',
             'INSERT (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, '
             || 'aggregate_id, event_type, payload, headers, raw_payload_base64, event_ts, received_at, '
             || 'status, error_stage, error_code, error_message), SELECT (id, message_id, source_system)'),
            (':consumer', 'relais_handled', 'INSERT (message_id, handler), SELECT (message_id, handler)'),
            (':reader', 'relais_schema', 'SELECT'),
            (':reader', 'relais_inbox', 'SELECT'),
            (':reader', 'relais_outbox', 'SELECT'),
            (':reader', 'relais_waiting', 'SELECT'),
            (':reader', 'relais_outbox_position', 'SELECT'),
            (':reader', 'relais_pending', 'SELECT'),
            (':reader', 'relais_sent', 'SELECT'),
            (':reader', 'relais_handled', 'SELECT'),
            (':reader', 'relais_version', 'SELECT'),
            (':reader', 'relais_dead_letter', 'SELECT'),
            (':reader', 'relais_parked_key', 'SELECT'),
            (':reader', 'relais_lane', 'SELECT'),
            (':reader', 'relais_lease', 'SELECT'),
            (':reader', 'relais_worker', 'SELECT'),
            (':reader', 'relais_bulk_job', 'SELECT'),
            (':reader', 'relais_control', 'SELECT'),
            (':reader', 'relais_report', 'SELECT'),
            (':reader', 'relais_process', 'SELECT'),
            (':reader', 'relais_process_log', 'SELECT'),
            (':reader', 'relais_audit', 'SELECT'),
            (':reader', 'relais_timer', 'SELECT'),
            (':reader', 'relais_attempt', 'SELECT'),
            (':reader', 'relais_source_position', 'SELECT'),
            (':reader', 'relais_adopted_change', 'SELECT'),
            (':reader', 'relais_claim', 'SELECT'),
            (':reader', 'relais_inbox_id_seq', 'SELECT'),
            (':reader', 'relais_outbox_id_seq', 'SELECT'),
            (':reader', 'relais_audit_id_seq', 'SELECT'),
            (':reader', 'relais_bulk_job_moved_seq', 'SELECT')
        ) AS wanted (role, name, rights)
        -- Not there before the first migration.
        WHERE to_regclass(format('%I.%I', ':schema', name)) IS NOT NULL
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', line.name, line.role);
        EXECUTE format('GRANT %s ON %s TO %I', line.rights, line.name, line.role);
    END LOOP;
    FOR line IN
        SELECT wanted.role, CAST(CAST(p.oid AS regprocedure) AS text) AS name
        FROM (VALUES
            (':consumer', 'relais_park'),
            (':publisher', 'relais_sweep_batch'),
            (':publisher', 'relais_claim_one'),
            (':publisher', 'relais_renew_claim'),
            (':publisher', 'relais_mark_published'),
            (':publisher', 'relais_mark_failed'),
            (':publisher', 'relais_reschedule')
        ) AS wanted (role, name)
        JOIN pg_proc AS p ON p.proname = wanted.name AND p.pronamespace = to_regnamespace(':schema')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', line.name, line.role);
    END LOOP;
END
$rights$;

COMMIT;
