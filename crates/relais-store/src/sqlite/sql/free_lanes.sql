-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
-- A lane whose next row waits for an event type in ?5 is left to the workers that know it.
SELECT lane, owner IS NOT NULL OR unclean AS unclean FROM relais_lane
WHERE scope = ?1 AND (owner IS NULL OR (owner <> ?2 AND owner IN (SELECT value FROM json_each(?4))))
  AND (wanted_type IS NULL OR wanted_type NOT IN (SELECT value FROM json_each(?5)))
ORDER BY lane
LIMIT ?3
