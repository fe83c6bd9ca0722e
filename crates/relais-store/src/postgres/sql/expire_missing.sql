-- An owner whose lease was removed by hand gets one that has expired, so that lost_workers can lock it.
INSERT INTO relais_lease (worker, lease_until, term)
SELECT DISTINCT o.owner, clock_timestamp(), 0
FROM relais_lane AS o
WHERE o.scope = $1 AND o.owner IS NOT NULL
  AND NOT EXISTS (SELECT FROM relais_lease AS l WHERE l.worker = o.owner)
ORDER BY 1
ON CONFLICT (worker) DO NOTHING
