SELECT id FROM relais_dead_letter
WHERE origin = ?2 AND origin_id = ?1 AND resolved_at IS NULL AND failed_status <> 'CONFLICT'
ORDER BY parked_at DESC
LIMIT 1
