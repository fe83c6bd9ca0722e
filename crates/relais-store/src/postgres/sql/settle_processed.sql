-- Handled: the ids that were still open and ours come back, because only their messages are written.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $5 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_inbox AS i
SET status = 'PROCESSED', attempts = i.attempts + 1, next_attempt_at = NULL,
    processed_at = clock_timestamp(), error_stage = NULL, error_code = NULL, error_message = NULL
FROM unnest($2::bigint[], $3::smallint[], $4::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
RETURNING i.id, FALSE AS stale
