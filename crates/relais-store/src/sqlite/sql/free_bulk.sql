-- Differs from postgres: the rows are made due by free_waiting.sql. Every row that is left is sent again as it was.
UPDATE relais_outbox SET job_id = NULL, next_attempt_at = NULL
WHERE id IN (SELECT id FROM relais_waiting WHERE job_id = ?1) AND job_id = ?1 AND status = 'PENDING'
