-- As in postgres: the row stored before under this id, and whether its content is the same: the
-- payload, or the bytes that came.
SELECT id, coalesce(payload = ?3, FALSE) OR coalesce(raw_payload_base64 = ?4, FALSE) AS same
FROM relais_inbox
WHERE source_system = ?1 AND message_id = ?2
