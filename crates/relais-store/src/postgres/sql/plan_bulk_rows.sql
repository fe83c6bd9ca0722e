-- From the owner of their lanes to the job. With a time to wait for that never comes, the rows leave
-- the index of fresh rows until the job lets them go.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
never (at) AS (VALUES (TIMESTAMPTZ '9000-01-01 00:00:00Z'))
UPDATE relais_outbox AS o SET job_id = $7, next_attempt_at = never.at
FROM never
CROSS JOIN unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE o.id = s.id AND o.lane = s.lane AND o.destination = $3 AND o.status = 'PENDING'
  AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
