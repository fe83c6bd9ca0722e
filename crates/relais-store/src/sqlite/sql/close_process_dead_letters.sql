-- Differs from postgres: one row a statement; times are text.
UPDATE relais_dead_letter
SET resolution = ?4, resolved_by = ?2, reason = ?3, resolved_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE message_id = ?1 AND origin = 'process' AND resolved_at IS NULL
RETURNING id
