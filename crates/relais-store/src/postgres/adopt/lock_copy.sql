-- Locks the copy of an adopted row; the newest, if the row was copied to several destinations.
SELECT id, status FROM relais_outbox
WHERE message_id = $1 AND adopted_by = $2 AND adopted_key = $3
ORDER BY id DESC
LIMIT 1
FOR NO KEY UPDATE
