-- As in postgres: the row goes again, first in its key because it has the lowest id.
UPDATE relais_outbox
SET attempts = 0, lost_workers = 0, status = 'PENDING', next_attempt_at = NULL, job_id = NULL,
    error_code = NULL, error_message = NULL
WHERE id = ?1 AND status = 'FAILED'
