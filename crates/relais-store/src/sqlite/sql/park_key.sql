-- As in postgres: the key of a dead letter is held back; behind an earlier one it already is.
INSERT INTO relais_parked_key (origin, destination, msg_key, dead_letter_id)
SELECT origin, coalesce(destination, ''), msg_key, id FROM relais_dead_letter WHERE id = ?1
ON CONFLICT (origin, destination, msg_key) DO NOTHING
