-- Its message is another row's: done without being handled.
UPDATE relais_inbox
SET status = 'PROCESSED', processed_at = clock_timestamp(), error_code = $2, error_message = $3
WHERE id = $1 AND status = 'SERDE_ERROR'
