-- Differs from postgres: the names come as a JSON array; no marks, because an index has no entries of
-- settled rows.
SELECT d.value
FROM json_each(?1) AS d
WHERE EXISTS (SELECT 1 FROM relais_outbox AS f INDEXED BY relais_outbox_fresh
              WHERE f.destination = d.value AND f.status = 'PENDING' AND f.next_attempt_at IS NULL)
   OR EXISTS (SELECT 1 FROM relais_outbox AS w INDEXED BY relais_outbox_due
              WHERE w.destination = d.value AND w.status = 'PENDING' AND w.next_attempt_at IS NOT NULL
                AND w.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
