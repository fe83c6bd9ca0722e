SELECT id FROM relais_dead_letter
WHERE origin = 'outbox' AND origin_id = $1 AND resolved_at IS NULL
ORDER BY parked_at DESC
LIMIT 1
