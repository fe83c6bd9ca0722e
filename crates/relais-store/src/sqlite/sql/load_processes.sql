-- Differs from postgres: one process a statement, by its id or by its type and key.
SELECT process_id, process_type, definition, business_key, status, current_step, data, retries,
       progress, version, created_at, updated_at
FROM relais_process
WHERE process_id = ?1 OR (process_type = ?2 AND business_key = ?3)
