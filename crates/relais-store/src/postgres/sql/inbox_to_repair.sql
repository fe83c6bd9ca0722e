-- A second operator waits here for the first and finds another status.
SELECT status, message_id, source_system, raw_payload_base64
FROM relais_inbox
WHERE id = $1
FOR UPDATE
