-- Differs from postgres: times are text that sorts.
INSERT INTO relais_lease (worker, lease_until, term)
SELECT DISTINCT o.owner, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0
FROM relais_lane AS o
WHERE o.scope = ?1 AND o.owner IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM relais_lease AS l WHERE l.worker = o.owner)
