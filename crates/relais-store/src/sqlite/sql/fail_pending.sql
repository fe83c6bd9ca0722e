-- As in postgres: an operator gives up a row that is still pending.
UPDATE relais_outbox
SET status = 'FAILED', next_attempt_at = NULL, error_code = ?2, error_message = ?3
WHERE id = ?1 AND status = 'PENDING'
