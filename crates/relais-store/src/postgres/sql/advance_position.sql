-- Never back: another worker may have been faster.
INSERT INTO relais_outbox_position AS p (destination, position) VALUES ($1, $2)
ON CONFLICT (destination) DO UPDATE SET position = excluded.position
WHERE p.position < excluded.position
