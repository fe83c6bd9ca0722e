-- Tried and failed for now: taken again when its time comes. The attempt is kept. A row that waits for a
-- worker that knows it had none.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $9 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE),
retried AS (
    UPDATE relais_inbox AS i
    SET status = 'RETRY', attempts = s.attempts,
        next_attempt_at = clock_timestamp() + s.pause_ms * INTERVAL '1 millisecond',
        error_stage = 'BUSINESS', error_code = s.error_code, error_message = s.error_message,
        unknown_since = CASE WHEN s.error_code IN ('UNKNOWN_EVENT_TYPE', 'PROCESS_DEFINITION')
                             THEN coalesce(i.unknown_since, clock_timestamp()) END
    FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[],
                $8::text[]) AS s (id, lane, epoch, attempts, pause_ms, error_code, error_message)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
    RETURNING i.id, i.attempts, i.error_code, i.error_message, i.unknown_since),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'inbox', id, attempts, 'retry', error_code, error_message, $1 FROM retried
    WHERE unknown_since IS NULL)
SELECT id FROM retried
