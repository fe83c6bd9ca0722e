-- Differs from postgres: one row a statement; the caller has compared the epoch of its lane in this transaction.
UPDATE relais_outbox
SET status = 'FAILED', attempts = ?4, next_attempt_at = NULL, error_code = ?5, error_message = ?6
WHERE id = ?1 AND status = 'PENDING' AND destination = ?2 AND lane = ?3
