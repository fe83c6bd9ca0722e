-- A row went into backoff: due rows behind it wait for it again. At most ?2 of them are due.
UPDATE relais_waiting SET due_at = NULL
WHERE id IN (SELECT b.id FROM relais_waiting AS r
             CROSS JOIN relais_waiting AS b INDEXED BY relais_waiting_key
                 ON b.destination = r.destination AND b.msg_key = r.msg_key AND b.id > r.id
             WHERE r.id = ?1
             ORDER BY b.id
             LIMIT ?2)
  AND holds_key AND job_id IS NULL AND due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
