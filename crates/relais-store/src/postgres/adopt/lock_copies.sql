-- Locks the copies of an adopted row: one for each destination that it had, newest first.
SELECT id, destination, status FROM relais_outbox
WHERE message_id = $1 AND adopted_by = $2 AND adopted_key = $3
ORDER BY id DESC
FOR NO KEY UPDATE
