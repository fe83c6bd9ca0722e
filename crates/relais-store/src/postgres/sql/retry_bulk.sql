-- As retry_outbox, for rows of a job; they are in it no longer.
WITH retried AS (
    UPDATE relais_outbox AS o
    SET attempts = coalesce(s.attempts, o.attempts), lost_workers = s.lost_workers, job_id = NULL,
        next_attempt_at = clock_timestamp() + s.pause_ms * INTERVAL '1 millisecond',
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($2::bigint[], $3::integer[], $4::bigint[], $5::text[], $6::text[], $8::smallint[])
         AS s (id, attempts, pause_ms, error_code, error_message, lost_workers)
    WHERE o.id = s.id AND o.job_id IS NOT DISTINCT FROM $1 AND o.status = 'PENDING'
    RETURNING o.id, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, o.next_attempt_at,
              s.attempts, o.error_code, o.error_message),
waits AS (
    INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
    SELECT id, destination, msg_key, next_attempt_at, TRUE FROM retried
    ON CONFLICT (id) DO UPDATE SET due_at = excluded.due_at, holds_key = TRUE, job_id = NULL),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'outbox', id, attempts, 'retry', error_code, error_message, $7
    FROM retried
    WHERE attempts IS NOT NULL)
SELECT count(*) FROM retried
