SELECT id, message_id, msg_key, event_type, payload, headers
FROM relais_inbox
WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
ORDER BY id + 0
LIMIT $1
