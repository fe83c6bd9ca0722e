-- Another worker was lost while these rows were held: they were not the reason. Rows that have more than $7
-- milliseconds to wait were held after the loss of this very worker: see bulk/drive.rs.
WITH fence AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($4::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_outbox AS o
SET lost_workers = $6, next_attempt_at = least(o.next_attempt_at, clock_timestamp())
FROM fence
WHERE o.lane = fence.lane AND o.destination = $3 AND o.status = 'PENDING'
  AND o.next_attempt_at IS NOT NULL AND o.job_id IS NULL AND o.lost_workers = $5
  AND o.next_attempt_at <= clock_timestamp() + $7::bigint * INTERVAL '1 millisecond'
