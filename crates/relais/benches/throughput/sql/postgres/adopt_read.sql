-- A poller that may run beside another one.
SELECT id, aggregate_type, aggregate_id, event_type, payload
FROM outbox
WHERE status = 'NEW'
ORDER BY created_at
LIMIT $1
FOR UPDATE SKIP LOCKED
