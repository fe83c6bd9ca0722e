-- As reopen_inbox, also for a handled row that the application reset.
UPDATE relais_inbox
SET status = 'RECEIVED', attempts = 0, lost_workers = 0, next_attempt_at = NULL, processed_at = NULL,
    error_stage = NULL, error_code = NULL, error_message = NULL, unknown_since = NULL
WHERE id = $1 AND status IN ('PROCESSED', 'FAILED')
