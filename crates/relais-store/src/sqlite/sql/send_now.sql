-- As in postgres: an operator ends the backoff of a row; enter_waiting writes the new time.
UPDATE relais_outbox SET next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ?1 AND status = 'PENDING' AND lost_workers < ?2
  AND EXISTS (SELECT 1 FROM relais_waiting AS w
              WHERE w.id = ?1 AND w.holds_key AND w.job_id IS NULL
                AND w.due_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
  AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                  WHERE p.origin = 'outbox' AND p.destination = relais_outbox.destination
                    AND p.msg_key = relais_outbox.msg_key)
