-- As in postgres: its own copy, or the message of the same id that was received before.
SELECT id, status, adopted_by IS ?3 AND adopted_key IS ?4,
       payload IS NOT ?5 OR raw_payload_base64 IS NOT ?6
       OR (?7 AND CASE WHEN next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN next_attempt_at END IS NOT ?8),
       CASE WHEN adopted_by = ?3 THEN adopted_key END
FROM relais_inbox
WHERE source_system = ?1 AND message_id = ?2
