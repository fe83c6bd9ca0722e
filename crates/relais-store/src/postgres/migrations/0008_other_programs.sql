-- Results that other programs report reach the rows of adopted tables.

-- A worker writes the result of a copied row into the application's own table.
CREATE FUNCTION relais_write_back_later(the_row bigint) RETURNS void LANGUAGE plpgsql AS
$$BEGIN
    INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
    SELECT o.adopted_by, o.adopted_key, o.message_id, 'unwritten'
    FROM relais_outbox AS o
    WHERE o.id = the_row AND o.adopted_by IS NOT NULL;
END$$;

-- The target accepted the message. FALSE if the claim was lost: another program may send it again.
CREATE OR REPLACE FUNCTION relais_mark_published(the_row bigint, the_fence bigint) RETURNS boolean LANGUAGE plpgsql AS
$$BEGIN
    IF NOT relais_end_claim(the_row, the_fence) THEN
        RETURN FALSE;
    END IF;
    PERFORM relais_leave_waiting(the_row);
    UPDATE relais_outbox
    SET status = 'DISPATCHED', dispatched_at = clock_timestamp(), next_attempt_at = NULL, error_code = NULL,
        error_message = NULL
    WHERE id = the_row;
    PERFORM relais_write_back_later(the_row);
    RETURN TRUE;
END$$;

-- The attempt failed; the message is due again at this time, or becomes a dead letter if there is none.
CREATE OR REPLACE FUNCTION relais_mark_failed(the_row bigint, the_fence bigint, the_error text,
                                   the_next_attempt timestamptz DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql AS
$$DECLARE
    the_worker text;
BEGIN
    SELECT c.worker INTO the_worker FROM relais_claim AS c WHERE c.id = the_row AND c.fence = the_fence;
    IF NOT relais_end_claim(the_row, the_fence) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'outbox', o.id, o.attempts + 1, CASE WHEN the_next_attempt IS NULL THEN 'failed' ELSE 'retry' END,
           'EXTERNAL', left(the_error, 2000), the_worker
    FROM relais_outbox AS o WHERE o.id = the_row;
    UPDATE relais_outbox
    SET attempts = attempts + 1, next_attempt_at = the_next_attempt, error_code = 'EXTERNAL',
        error_message = left(the_error, 2000),
        status = CASE WHEN the_next_attempt IS NULL THEN 'FAILED' ELSE status END
    WHERE id = the_row;
    IF the_next_attempt IS NULL THEN
        PERFORM relais_leave_waiting(the_row);
        INSERT INTO relais_dead_letter (origin, origin_id, message_id, destination, event_type, msg_key, payload,
                                        headers, failed_status, error_class, error_message, attempts, parked_by)
        SELECT 'outbox', o.id, o.message_id::text, o.destination, o.event_type,
               coalesce(o.msg_key, o.aggregate_id), o.payload, coalesce(o.headers::text, '{}'), o.status,
               o.error_code, o.error_message, o.attempts, the_worker
        FROM relais_outbox AS o WHERE o.id = the_row;
    END IF;
    PERFORM relais_write_back_later(the_row);
    RETURN TRUE;
END$$;

-- Replacing a function resets how it runs, but not who may call it.
DO $rights$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT p.oid::regprocedure AS name, p.proname <> 'relais_write_back_later' AS is_called
               FROM pg_proc AS p
               WHERE p.pronamespace = current_schema()::regnamespace
                 AND p.proname IN ('relais_mark_published', 'relais_mark_failed', 'relais_write_back_later') LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one.name, current_schema());
        IF one.is_called THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', one.name);
        ELSE
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one.name);
        END IF;
    END LOOP;
END
$rights$;
