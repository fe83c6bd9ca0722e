-- Pending rows up to the position of their destination that do not wait: they were changed, or inserted with an
-- id of their own. They are due, or wait for their time.
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
SELECT o.id, o.destination, o.msg_key,
       coalesce(o.next_attempt_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), 1
FROM relais_outbox AS o
WHERE o.id > ?1 AND o.id <= ?2 AND o.status = 'PENDING' AND o.msg_key IS NOT NULL
  AND o.id <= (SELECT p.position FROM relais_outbox_position AS p WHERE p.destination = o.destination)
  AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id)
