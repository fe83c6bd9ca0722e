-- The rows were marked handled just before.
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
SELECT 'inbox', i.id, i.attempts, 'ignored', s.error_code, s.error_message, $1
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS s (id, error_code, error_message)
JOIN relais_inbox AS i ON i.id = s.id
