-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
-- A lane whose next row waits for an event type in ?5 is left to the workers that know it.
-- A lease that ends later than any lease can (an hour, or three of ours) was granted by a clock that was
-- set back since, and counts as expired. The fence stops its owner, if it lives.
SELECT lane, owner IS NOT NULL OR unclean AS unclean FROM relais_lane
WHERE scope = ?1
  AND (owner IS NULL
       OR (owner <> ?2
           AND (coalesce(lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                OR lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?4 / 1000.0) || ' seconds'))))
  AND (wanted_type IS NULL OR wanted_type NOT IN (SELECT value FROM json_each(?5)))
ORDER BY lane
LIMIT ?3
