-- Differs from postgres: one row a statement; the caller has compared the epoch of its lane in this transaction.
-- A row in a job has a time to wait for that never comes.
UPDATE relais_outbox SET job_id = ?4, next_attempt_at = '9000-01-01T00:00:00.000Z'
WHERE id = ?1 AND status = 'PENDING' AND destination = ?2 AND lane = ?3
  AND coalesce(next_attempt_at, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w
                  WHERE w.id = ?1
                    AND (w.due_at IS NULL OR w.due_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
