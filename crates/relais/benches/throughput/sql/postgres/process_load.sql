SELECT process_id, definition, business_key, status, current_step, data, retries, progress, version
FROM relais_process
WHERE process_id = ANY ($1::uuid[])
