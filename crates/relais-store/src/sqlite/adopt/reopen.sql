-- As reopen_outbox, also for a delivered row that the application reset.
UPDATE relais_outbox
SET status = 'PENDING', attempts = 0, lost_workers = 0, next_attempt_at = NULL, job_id = NULL, dispatched_at = NULL,
    error_code = NULL, error_message = NULL
WHERE id = ?1 AND status <> 'PENDING'
