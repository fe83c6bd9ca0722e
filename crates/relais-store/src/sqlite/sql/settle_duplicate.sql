-- Differs from postgres: times are text.
UPDATE relais_inbox
SET status = 'PROCESSED', processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), error_code = ?2,
    error_message = ?3
WHERE id = ?1 AND status = 'SERDE_ERROR'
