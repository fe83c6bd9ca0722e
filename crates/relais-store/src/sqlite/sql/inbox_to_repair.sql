-- Differs from postgres: there is one writer, so nothing needs locking.
SELECT status, message_id, source_system, raw_payload_base64
FROM relais_inbox
WHERE id = ?1
