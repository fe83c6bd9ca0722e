-- Differs from postgres: times are text.
INSERT INTO relais_source_position (source, partition_key, position) VALUES (?1, ?2, ?3)
ON CONFLICT (source, partition_key) DO UPDATE
SET position = excluded.position, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
