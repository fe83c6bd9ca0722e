-- Differs from postgres: one row a statement.
INSERT INTO relais_process (process_id, process_type, definition, business_key, status, current_step,
                            data, retries, progress, version, key_hold)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
