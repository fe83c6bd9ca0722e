-- The first fresh row of a destination above an id; without those that were sent with a delay if ?4. Waiting rows
-- are looked up only if it has any (?3).
SELECT o.id
FROM relais_outbox AS o INDEXED BY relais_outbox_destination
WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
  AND (NOT ?4 OR coalesce(o.next_attempt_at, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
  AND (NOT ?3 OR NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id))
ORDER BY o.id
LIMIT 1
