-- Differs from postgres: the ids are a JSON array.
SELECT origin, origin_id, attempt, at, outcome, error_code, error_message, worker
FROM relais_attempt
WHERE origin = ?1 AND origin_id IN (SELECT value FROM json_each(?2))
ORDER BY id
LIMIT ?3
