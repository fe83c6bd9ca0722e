-- As in postgres.
SELECT origin, destination, msg_key, parked_at FROM relais_parked_key
ORDER BY parked_at, origin, destination, msg_key
LIMIT ?1
