-- Differs from postgres: one row a statement.
UPDATE relais_outbox SET job_id = NULL, next_attempt_at = NULL
WHERE id = ?1 AND job_id = ?2 AND status = 'PENDING'
