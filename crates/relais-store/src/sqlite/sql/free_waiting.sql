-- The rows of a job that has ended are due at once.
UPDATE relais_waiting SET job_id = NULL, due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE job_id = ?1
