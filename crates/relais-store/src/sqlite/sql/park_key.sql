-- As in postgres: parks the key of a dead letter; behind an earlier one it already is parked.
INSERT INTO relais_parked_key (origin, destination, msg_key, dead_letter_id)
SELECT origin, coalesce(destination, ''), msg_key, id FROM relais_dead_letter WHERE id = ?1
ON CONFLICT (origin, destination, msg_key) DO NOTHING
