-- The first operator wins; the second one waits for the row and finds it resolved.
UPDATE relais_dead_letter
SET resolution = $2, resolved_by = $3, reason = $4, resolved_at = clock_timestamp()
WHERE id = $1 AND resolved_at IS NULL
RETURNING origin, origin_id, message_id, destination, msg_key, payload, failed_status
