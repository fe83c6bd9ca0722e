INSERT INTO relais_process_log (process_id, seq, event_type, event, message_id)
VALUES (?1, ?2, ?3, ?4, ?5)
