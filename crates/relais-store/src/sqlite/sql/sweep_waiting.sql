-- Waiting rows that are not pending any more, or were removed.
DELETE FROM relais_waiting
WHERE id > ?1 AND id <= ?2
  AND NOT EXISTS (SELECT 1 FROM relais_outbox AS o WHERE o.id = relais_waiting.id AND o.status = 'PENDING')
RETURNING destination, msg_key
