-- As in postgres.
INSERT INTO relais_handled (message_id, handler) VALUES (?1, ?2)
ON CONFLICT (message_id, handler) DO NOTHING
