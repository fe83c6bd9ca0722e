-- Differs from postgres: one row a statement, with the fence in it; one transaction all the same.
-- With a time to wait for that never comes, the row leaves the index of fresh rows until the job lets
-- it go.
WITH never (at) AS (VALUES ('9000-01-01T00:00:00.000Z'))
UPDATE relais_outbox SET job_id = ?6, next_attempt_at = (SELECT at FROM never)
WHERE id = ?1 AND status = 'PENDING' AND destination = ?5
  AND coalesce(next_attempt_at, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?2 AND l.lane = relais_outbox.lane AND l.owner = ?3 AND l.epoch = ?4)
