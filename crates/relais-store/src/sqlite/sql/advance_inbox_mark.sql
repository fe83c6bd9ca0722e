-- As for the outbox.
SELECT coalesce(
    (SELECT f.id - 1 FROM relais_inbox AS f INDEXED BY relais_inbox_fresh
     WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL AND f.id > ?3
       AND (?2 >> f.lane) & 1 AND f.inbox = ?1
       AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                       WHERE p.origin = 'inbox' AND p.destination = ?1 AND p.msg_key = f.msg_key)
     ORDER BY f.id
     LIMIT 1),
    (SELECT f.id FROM relais_inbox AS f INDEXED BY relais_inbox_fresh
     WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL AND f.id > ?3
     ORDER BY f.id DESC
     LIMIT 1),
    ?3)
