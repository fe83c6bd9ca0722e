-- As in postgres.
SELECT id, adopted_by, adopted_key, kind FROM relais_adopted_change
WHERE id > ?1 AND adopted_by IN (SELECT value FROM json_each(?2))
ORDER BY id
LIMIT ?3
