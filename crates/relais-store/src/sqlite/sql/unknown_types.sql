-- As in postgres.
SELECT event_type, count(*)
FROM relais_inbox
WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
  AND unknown_since IS NOT NULL AND event_type IS NOT NULL
GROUP BY event_type
ORDER BY count(*) DESC, event_type
LIMIT ?1
