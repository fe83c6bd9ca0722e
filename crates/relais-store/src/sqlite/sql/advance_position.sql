-- The position of a destination never goes back.
INSERT INTO relais_outbox_position (destination, position) VALUES (?1, ?2)
ON CONFLICT (destination) DO UPDATE SET position = excluded.position
WHERE relais_outbox_position.position < excluded.position
