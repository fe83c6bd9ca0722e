-- Differs from postgres: no lock. SQLite has one writer, and it is us. Times are text that sorts.
-- A lease that ends later than any lease can (an hour, or three of ours) was granted by a clock that was
-- set back since, and counts as expired. The fence stops its owner, if it lives.
SELECT l.worker
FROM relais_lease AS l
WHERE l.worker <> ?2
  AND l.worker IN (SELECT o.owner FROM relais_lane AS o WHERE o.scope = ?1 AND o.owner IS NOT NULL)
  AND (l.lease_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
       OR l.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?3 / 1000.0) || ' seconds'))
ORDER BY l.worker
