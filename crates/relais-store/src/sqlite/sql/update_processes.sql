-- Differs from postgres: one row a statement.
UPDATE relais_process
SET status = ?3, current_step = ?4, data = ?5, retries = ?6, progress = ?7, version = ?8,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), key_hold = ?9,
    business_key = iif(?9 = 'RELEASED', NULL, business_key),
    released_key = iif(?9 = 'RELEASED', coalesce(business_key, released_key), NULL)
WHERE process_id = ?1 AND version = ?2
