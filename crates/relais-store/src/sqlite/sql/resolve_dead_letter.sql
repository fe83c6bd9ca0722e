-- Differs from postgres: times are text.
UPDATE relais_dead_letter
SET resolution = ?2, resolved_by = ?3, reason = ?4, resolved_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ?1 AND resolved_at IS NULL
RETURNING origin, origin_id, failed_status, message_id, payload
