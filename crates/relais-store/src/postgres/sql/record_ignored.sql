-- The rows were marked handled just before: their time is the time of the attempt.
INSERT INTO relais_attempt (origin, origin_id, attempt, at, outcome, error_code, error_message, worker)
SELECT 'inbox', i.id, i.attempts, i.processed_at, 'ignored', s.error_code, s.error_message, $1
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS s (id, error_code, error_message)
JOIN relais_inbox AS i ON i.id = s.id
