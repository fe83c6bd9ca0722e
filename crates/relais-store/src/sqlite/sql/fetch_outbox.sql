-- Differs from postgres: only the walk over fresh rows, in order of their ids; the caller stops it. Lanes and keys
-- are compared by the caller. Waiting rows are looked up only if the destination has any (?3). `octet_length`
-- reads no payload.
SELECT o.id, o.msg_key, o.next_attempt_at IS NOT NULL AND o.next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       octet_length(o.payload)
FROM relais_outbox AS o INDEXED BY relais_outbox_destination
WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
  AND (NOT ?3 OR NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id))
ORDER BY o.id
