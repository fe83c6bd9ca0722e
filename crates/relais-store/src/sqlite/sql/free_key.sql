-- As in postgres.
DELETE FROM relais_parked_key WHERE dead_letter_id = ?1 RETURNING origin, destination, msg_key
