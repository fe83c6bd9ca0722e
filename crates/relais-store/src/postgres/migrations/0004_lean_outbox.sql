-- A lean outbox: an ordinary message is one INSERT and one UPDATE in place (HOT). Rows that wait are also in
-- relais_waiting. See docs/decisions/0012-lean-outbox.md.

-- Each CHECK, trigger and generated column of a table costs each INSERT of one row 4 to 13 µs, because the server
-- parses its text again for each statement. The constraints of a domain are parsed once for each session, and
-- are checked only when a value is assigned, so a settlement does not read the payload again.
DROP TRIGGER relais_outbox_key ON relais_outbox;
DROP TRIGGER relais_outbox_json ON relais_outbox;
DROP FUNCTION relais_default_key();
ALTER TABLE relais_outbox
    DROP CONSTRAINT relais_outbox_id_check,
    DROP CONSTRAINT relais_outbox_category_check,
    DROP CONSTRAINT relais_outbox_destination_check,
    DROP CONSTRAINT relais_outbox_status,
    DROP CONSTRAINT relais_outbox_attempts_check;

-- The column gets its type before the domain gets its constraint, so that no row is read or rewritten.
DROP VIEW relais_sent;
CREATE DOMAIN relais_category AS text;
CREATE DOMAIN relais_payload AS text;
CREATE DOMAIN relais_headers AS text;
ALTER TABLE relais_outbox
    ALTER COLUMN category TYPE relais_category,
    ALTER COLUMN payload TYPE relais_payload,
    ALTER COLUMN headers TYPE relais_headers;
ALTER DOMAIN relais_category ADD CONSTRAINT "category must be event, command or reply"
    CHECK (VALUE IN ('event', 'command', 'reply')) NOT VALID;
-- A row that is copied from an adopted table is not validated: an error here would fail the INSERT of the
-- application. A payload that is no JSON becomes a dead letter instead.
ALTER DOMAIN relais_payload ADD CONSTRAINT "payload must be JSON"
    CHECK (CASE WHEN current_setting('relais.adopted', TRUE) = 'on' THEN TRUE
                ELSE VALUE::json IS NOT NULL END) NOT VALID;
ALTER DOMAIN relais_headers ADD CONSTRAINT "headers must be a JSON object"
    CHECK (json_typeof(VALUE::json) = 'object') NOT VALID;
DO 'DECLARE copy text; BEGIN
    FOR copy IN SELECT p.oid::regprocedure::text FROM pg_proc AS p
                WHERE p.pronamespace = current_schema()::regnamespace
                  AND p.proname LIKE ''relais\_adopted\_copy\_%''
    LOOP EXECUTE format(''ALTER FUNCTION %s SET relais.adopted = %L'', copy, ''on''); END LOOP; END';

-- Rows that wait: in backoff, delayed, in a bulk job, sent again by an operator, and rows behind another
-- waiting row or a parked key. A pending row stays here until it is settled. No foreign key: it would cost each
-- settlement a look-up.
CREATE TABLE relais_waiting (
    id          bigint PRIMARY KEY,
    destination text COLLATE "C" NOT NULL,
    msg_key     text COLLATE "C" NOT NULL,
    -- When it may go; NULL while it is in a bulk job or behind something.
    due_at      timestamptz,
    -- Whether later rows of its key wait for it: not for a delayed row that was never tried.
    holds_key   boolean NOT NULL,
    job_id      text
);
CREATE INDEX relais_waiting_due ON relais_waiting (destination, due_at) WHERE due_at IS NOT NULL;
-- By the hash of the key, because an index entry holds at most 2,704 bytes. `id + 0` is in no other index: a
-- planner must never walk the primary key instead, all that waits.
CREATE INDEX relais_waiting_key ON relais_waiting (destination, hashtextextended(msg_key, 0), (id + 0));
-- What is left to settle of a bulk job.
CREATE INDEX relais_waiting_job ON relais_waiting (job_id, (id + 0)) WHERE job_id IS NOT NULL;
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key, job_id)
SELECT id, destination, msg_key, CASE WHEN job_id IS NULL THEN next_attempt_at END,
       attempts > 0 OR job_id IS NOT NULL OR error_code IS NOT NULL, job_id
FROM relais_outbox
WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL;

-- No row of the destination up to the position is fresh (pending and not waiting), and none becomes so. A fetch
-- starts behind it.
CREATE TABLE relais_outbox_position (
    destination text COLLATE "C" PRIMARY KEY,
    position    bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO relais_outbox_position (destination, position)
SELECT destination,
       coalesce(min(id) FILTER (WHERE status = 'PENDING' AND next_attempt_at IS NULL) - 1, max(id))
FROM relais_outbox
GROUP BY destination;

-- Nothing that a settlement changes is indexed.
DROP INDEX relais_outbox_fresh;
DROP INDEX relais_outbox_due;
DROP INDEX relais_outbox_held;
DROP INDEX relais_outbox_job;
DROP INDEX relais_outbox_failed;
DROP INDEX relais_outbox_cause;
ALTER TABLE relais_outbox
    DROP COLUMN lane,
    -- NULL: the aggregate id is the key.
    ALTER COLUMN msg_key DROP NOT NULL;
-- A settled row is 8 bytes longer: a little more than half of a page is left for the second versions.
ALTER TABLE relais_outbox SET (fillfactor = 48);
ALTER INDEX relais_outbox_pkey RESET (fillfactor);
ALTER INDEX relais_outbox_message RESET (fillfactor);
CREATE INDEX relais_outbox_destination ON relais_outbox (destination, id);
-- What a message caused. A hash index holds no NULL and takes values of any length.
CREATE INDEX relais_outbox_cause ON relais_outbox USING hash (causation_id);

-- What a sender needs to see whether it sent a message before: hashes of type, key and payload, also of the
-- payload before an edit. A view, because a producer may not read payloads.
CREATE VIEW relais_sent AS
SELECT o.id, o.message_id, o.destination,
       ARRAY (SELECT sha256(convert_to(json_build_array(o.event_type, coalesce(o.msg_key, o.aggregate_id),
                                                        p.payload)::text, 'UTF8'))
              FROM (SELECT o.payload::text AS payload
                    UNION ALL
                    SELECT d.original_payload FROM relais_dead_letter AS d
                    WHERE d.origin = 'outbox' AND d.origin_id = o.id
                      AND d.original_payload IS NOT NULL) AS p) AS contents
FROM relais_outbox AS o;

-- Every pending row, without reading history: fresh rows behind the position of their destination, found by
-- one look-up for each destination, and waiting rows.
CREATE VIEW relais_pending AS
WITH RECURSIVE place (destination) AS (
    (SELECT o.destination FROM relais_outbox AS o ORDER BY o.destination, o.id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM relais_outbox AS o
            WHERE o.destination > place.destination
            ORDER BY o.destination, o.id
            LIMIT 1)
    FROM place
    WHERE place.destination IS NOT NULL)
SELECT fresh.id, place.destination, FALSE AS waits
FROM place
CROSS JOIN LATERAL (
    SELECT o.id FROM relais_outbox AS o
    WHERE (o.destination, o.id)
          > (place.destination, coalesce((SELECT p.position FROM relais_outbox_position AS p
                                          WHERE p.destination = place.destination), 0))
      AND o.destination <= place.destination AND o.status = 'PENDING'
      AND (SELECT w.id FROM relais_waiting AS w WHERE w.id = o.id LIMIT 1) IS NULL
    ORDER BY o.destination, o.id
    OFFSET 0) AS fresh
UNION ALL
SELECT w.id, w.destination, TRUE FROM relais_waiting AS w;
