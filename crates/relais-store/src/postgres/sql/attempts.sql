SELECT origin, origin_id, attempt, at, outcome, error_code, error_message, worker
FROM relais_attempt
WHERE origin = $1 AND origin_id = ANY ($2::bigint[])
ORDER BY id
LIMIT $3
