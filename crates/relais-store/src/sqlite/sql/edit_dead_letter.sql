-- Differs from postgres: times are text.
UPDATE relais_dead_letter
SET original_payload = CASE WHEN edited_at IS NULL THEN payload ELSE original_payload END,
    payload = ?2, edited_by = ?3, edited_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ?1 AND resolved_at IS NULL
RETURNING origin, origin_id, failed_status
