-- One worker handles it; others leave it alone.
DELETE FROM relais_adopted_change
WHERE id = (SELECT c.id FROM relais_adopted_change AS c WHERE c.id = $1 FOR UPDATE SKIP LOCKED)
RETURNING message_id
