-- Right below the lowest fresh row above ?3 whose key is not parked, whether it may go now or not; else
-- the highest fresh row.
SELECT coalesce(
    (SELECT f.id - 1 FROM relais_outbox AS f INDEXED BY relais_outbox_fresh
     WHERE f.destination = ?1 AND f.status = 'PENDING' AND f.next_attempt_at IS NULL AND f.id > ?3
       AND (?2 >> f.lane) & 1
       AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                       WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = f.msg_key)
     ORDER BY f.id
     LIMIT 1),
    (SELECT f.id FROM relais_outbox AS f INDEXED BY relais_outbox_fresh
     WHERE f.destination = ?1 AND f.status = 'PENDING' AND f.next_attempt_at IS NULL AND f.id > ?3
     ORDER BY f.id DESC
     LIMIT 1),
    ?3)
