-- Differs from postgres: one row a statement. As mark_dispatched, for a row of a job.
UPDATE relais_outbox
SET status = 'DISPATCHED', attempts = attempts + 1, dispatched_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    next_attempt_at = NULL, error_code = NULL, error_message = NULL
WHERE id = ?1 AND job_id = ?2 AND status = 'PENDING'
