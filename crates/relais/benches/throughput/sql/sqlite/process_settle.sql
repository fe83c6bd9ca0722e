UPDATE relais_inbox
SET status = 'PROCESSED', attempts = attempts + 1,
    processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ?1
