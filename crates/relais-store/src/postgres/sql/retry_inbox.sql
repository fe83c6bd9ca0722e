-- Tried and failed for now: taken again when its time comes.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = 'inbox' AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_inbox AS i
SET status = 'RETRY', attempts = s.attempts,
    next_attempt_at = clock_timestamp() + s.pause_ms * INTERVAL '1 millisecond',
    error_stage = 'BUSINESS', error_code = s.error_code, error_message = s.error_message
FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[],
            $8::text[]) AS s (id, lane, epoch, attempts, pause_ms, error_code, error_message)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
