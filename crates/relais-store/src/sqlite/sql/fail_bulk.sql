-- Differs from postgres: one row a statement. As fail_outbox, for a row of a job.
UPDATE relais_outbox
SET status = 'FAILED', attempts = ?3, next_attempt_at = NULL, error_code = ?4, error_message = ?5
WHERE id = ?1 AND job_id = ?2 AND status = 'PENDING'
