-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
SELECT lane, owner IS NOT NULL AS unclean FROM relais_lane
WHERE scope = ?1
  AND (owner IS NULL OR (owner <> ?2 AND coalesce(lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
ORDER BY lane
LIMIT ?3
