-- Another worker was lost while these rows were held: they were not the reason.
WITH fence AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_inbox AS i
SET lost_workers = $5, next_attempt_at = least(i.next_attempt_at, clock_timestamp())
FROM fence
WHERE i.lane = fence.lane AND i.status IN ('RECEIVED', 'RETRY')
  AND i.inbox = $6 AND i.next_attempt_at IS NOT NULL AND i.lost_workers = $4
