-- The first ?3 rows of a key become due, if its first row is not in backoff or in a job, and it is not parked.
UPDATE relais_waiting SET due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id IN (SELECT b.id FROM relais_waiting AS b INDEXED BY relais_waiting_key
             WHERE b.destination = ?1 AND b.msg_key = ?2
             ORDER BY b.id
             LIMIT ?3)
  AND due_at IS NULL AND job_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                  WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = ?2)
  AND (SELECT h.job_id IS NULL
              AND coalesce(h.due_at, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
       FROM relais_waiting AS h INDEXED BY relais_waiting_key
       WHERE h.destination = ?1 AND h.msg_key = ?2 AND h.holds_key
       ORDER BY h.id
       LIMIT 1)
