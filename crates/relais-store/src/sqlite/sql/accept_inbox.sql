-- Differs from postgres: one row a statement; a batch is one transaction all the same.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str,
                          msg_key, aggregate_id, event_type, payload, headers, raw_payload_base64,
                          event_ts, status, error_stage, error_code, error_message)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
ON CONFLICT (source_system, message_id) DO NOTHING
