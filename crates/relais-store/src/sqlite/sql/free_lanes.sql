-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
SELECT lane, owner IS NOT NULL OR unclean AS unclean FROM relais_lane
WHERE scope = ?1
  AND (owner IS NULL OR (owner <> ?2 AND coalesce(lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
  AND (wanted_type IS NULL OR wanted_type NOT IN (SELECT value FROM json_each(?4)))
ORDER BY lane
LIMIT ?3
