-- Not delivered: stays PENDING until its time comes, and holds its key. Without `attempts` no attempt was
-- used, and none is recorded. Gives back how many rows there were.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
retried AS (
    UPDATE relais_outbox AS o
    SET msg_key = coalesce(o.msg_key, o.aggregate_id COLLATE "C"),
        attempts = coalesce(s.attempts, o.attempts), lost_workers = s.lost_workers,
        next_attempt_at = clock_timestamp() + s.pause_ms * INTERVAL '1 millisecond',
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($4::bigint[], $5::smallint[], $6::bigint[], $7::integer[], $8::bigint[], $9::text[],
                $10::text[], $11::smallint[])
         AS s (id, lane, epoch, attempts, pause_ms, error_code, error_message, lost_workers)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE o.id = s.id AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = s.lane
      AND o.destination = $3 AND o.status = 'PENDING'
    RETURNING o.id, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, o.next_attempt_at, s.attempts,
              o.error_code, o.error_message),
waits AS (
    INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
    SELECT id, $3, msg_key, next_attempt_at, TRUE FROM retried
    ON CONFLICT (id) DO UPDATE SET due_at = excluded.due_at, holds_key = TRUE, job_id = NULL),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'outbox', id, attempts, 'retry', error_code, error_message, $2
    FROM retried
    WHERE attempts IS NOT NULL)
SELECT count(*) FROM retried
