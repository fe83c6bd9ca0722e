-- Differs from postgres: only the walk over fresh rows, in order of their ids; the caller stops it. Lanes and keys
-- are compared by the caller. Waiting rows are looked up only if the destination has any (?3). `octet_length`
-- reads no payload. The last column is 1 for a delayed row, 2 for one that holds its key.
SELECT o.id, o.msg_key, octet_length(o.payload),
       CASE WHEN o.next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
            THEN 1 + (o.attempts > 0 OR o.error_code IS NOT NULL) ELSE 0 END
FROM relais_outbox AS o INDEXED BY relais_outbox_destination
WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
  AND (NOT ?3 OR NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id))
ORDER BY o.id
