-- Differs from postgres: one row a statement. As retry_outbox; the row is in the job no longer.
UPDATE relais_outbox
SET attempts = coalesce(?3, attempts), lost_workers = ?7, job_id = NULL,
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?4 / 1000.0) || ' seconds'),
    error_code = ?5, error_message = ?6
WHERE id = ?1 AND job_id = ?2 AND status = 'PENDING'
