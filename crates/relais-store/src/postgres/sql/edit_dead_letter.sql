-- The payload that came is kept, however often it is edited.
UPDATE relais_dead_letter
SET original_payload = CASE WHEN edited_at IS NULL THEN payload ELSE original_payload END,
    payload = $2, edited_by = $3, edited_at = clock_timestamp()
WHERE id = $1 AND resolved_at IS NULL
RETURNING origin, origin_id, failed_status
