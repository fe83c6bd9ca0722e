-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
-- A lease that ends later than any lease can (an hour, or three of ours) was granted by a clock that was
-- set back since, and counts as expired. The fence stops its owner, if it lives.
SELECT lane, owner IS NOT NULL AS unclean FROM relais_lane
WHERE scope = ?1
  AND (owner IS NULL
       OR (owner <> ?2
           AND (coalesce(lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                OR lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?4 / 1000.0) || ' seconds'))))
ORDER BY lane
LIMIT ?3
