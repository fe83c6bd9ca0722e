-- Differs from postgres: one row a statement. The row was marked handled just before: its time is the time
-- of the attempt.
INSERT INTO relais_attempt (origin, origin_id, attempt, at, outcome, error_code, error_message, worker)
SELECT 'inbox', id, attempts, processed_at, 'ignored', ?2, ?3, ?4
FROM relais_inbox
WHERE id = ?1
