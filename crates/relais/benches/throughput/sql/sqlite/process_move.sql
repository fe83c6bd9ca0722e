UPDATE relais_process
SET status = ?3, current_step = ?4, data = ?5, retries = ?6, progress = ?7, version = ?8,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE process_id = ?1 AND version = ?2
