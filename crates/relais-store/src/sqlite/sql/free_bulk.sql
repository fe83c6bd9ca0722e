-- As in postgres: every row that is left goes again as it was.
UPDATE relais_outbox SET job_id = NULL, next_attempt_at = NULL
WHERE job_id = ?1 AND status = 'PENDING'
