-- Differs from postgres: one process a statement, by its id or by its type and key.
SELECT process_id, process_type, definition, coalesce(business_key, released_key) AS business_key, status,
       current_step, data, retries, progress, version, created_at, updated_at, key_hold
FROM relais_process
WHERE process_id = coalesce(
    ?1,
    (SELECT h.process_id FROM relais_process AS h WHERE h.process_type = ?2 AND h.business_key = ?3),
    (SELECT r.process_id FROM relais_process AS r
     WHERE r.process_type = ?2 AND r.released_key = ?3
     ORDER BY r.created_at DESC, r.process_id DESC LIMIT 1))
