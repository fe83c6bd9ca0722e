-- Differs from postgres: one destination a statement.
WITH read (id, msg_key, holds_key) AS MATERIALIZED (
    SELECT w.id, w.msg_key, w.holds_key
    FROM relais_waiting AS w INDEXED BY relais_waiting_due
    WHERE w.destination = ?1 AND w.due_at IS NOT NULL
    ORDER BY w.due_at
    LIMIT ?2),
failing (keys, first) AS MATERIALIZED (
    SELECT count(DISTINCT r.msg_key), min(r.id)
    FROM read AS r
    WHERE r.holds_key
      AND (SELECT e.error_code FROM relais_outbox AS e WHERE e.id = r.id AND e.status = 'PENDING') IS NOT NULL)
SELECT failing.keys, o.id, o.msg_key,
       coalesce((SELECT max(a.at) FROM relais_attempt AS a
                 WHERE a.origin = 'outbox' AND a.origin_id = o.id AND a.attempt = 1), o.created_at) AS since,
       o.attempts, o.next_attempt_at, o.error_code, o.error_message
FROM failing
CROSS JOIN relais_outbox AS o ON o.id = failing.first
