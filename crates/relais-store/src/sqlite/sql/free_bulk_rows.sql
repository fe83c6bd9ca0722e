-- Differs from postgres: one row a statement.
UPDATE relais_outbox SET job_id = NULL, next_attempt_at = NULL, lost_workers = 0
WHERE id = ?1 AND job_id = ?2 AND status = 'PENDING'
