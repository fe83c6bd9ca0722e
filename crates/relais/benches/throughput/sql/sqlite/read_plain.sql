SELECT id, message_id, aggregate_type, aggregate_id, event_type, payload, headers, msg_key
FROM plain_relay
WHERE status = 'PENDING'
ORDER BY id
LIMIT ?1
