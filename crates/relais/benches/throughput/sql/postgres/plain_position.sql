INSERT INTO plain_position (source, position) VALUES ('orders', $1)
ON CONFLICT (source) DO UPDATE SET position = plain_position.position + excluded.position
