-- The row was settled just before.
DELETE FROM relais_waiting WHERE id = ?1 RETURNING destination, msg_key
