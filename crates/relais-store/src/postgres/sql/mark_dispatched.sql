-- The whole settlement of a batch that went well, in one statement and one round trip. The lanes'
-- rows are locked in order and compared after the lock, so a take-over comes before or after, never
-- between.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_outbox AS o
SET status = 'DISPATCHED', attempts = o.attempts + 1, next_attempt_at = NULL,
    dispatched_at = clock_timestamp(), error_code = NULL, error_message = NULL
FROM unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE o.id = s.id AND o.lane = s.lane AND o.destination = $3 AND o.status = 'PENDING'
