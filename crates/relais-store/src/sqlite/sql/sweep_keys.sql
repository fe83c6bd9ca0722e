-- Keys of waiting rows that are not due: their obstacle may be removed.
SELECT DISTINCT destination, msg_key
FROM relais_waiting
WHERE id > ?1 AND id <= ?2 AND due_at IS NULL AND job_id IS NULL
