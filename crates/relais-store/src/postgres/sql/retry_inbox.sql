-- Not handled: taken again when its time comes. Without `attempts` no attempt was used, and none is
-- recorded. Gives back how many rows there were.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $10 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE),
retried AS (
    UPDATE relais_inbox AS i
    SET status = 'RETRY', attempts = coalesce(s.attempts, i.attempts), lost_workers = s.lost_workers,
        next_attempt_at = clock_timestamp() + s.pause_ms * INTERVAL '1 millisecond',
        error_stage = 'BUSINESS', error_code = s.error_code, error_message = s.error_message,
        unknown_since = CASE WHEN s.error_code IN ('UNKNOWN_EVENT_TYPE', 'PROCESS_DEFINITION')
                             THEN coalesce(i.unknown_since, clock_timestamp()) END
    FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[],
                $8::text[], $9::smallint[])
         AS s (id, lane, epoch, attempts, pause_ms, error_code, error_message, lost_workers)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
    RETURNING i.id, s.attempts, i.error_code, i.error_message),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'inbox', id, attempts, 'retry', error_code, error_message, $1
    FROM retried
    WHERE attempts IS NOT NULL)
SELECT count(*) FROM retried
