-- Differs from postgres: one row a statement. The row was marked handled just before.
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
SELECT 'inbox', id, attempts, 'ignored', ?2, ?3, ?4
FROM relais_inbox
WHERE id = ?1
