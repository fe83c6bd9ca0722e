-- The first waiting row that holds a key, and whether the key is parked.
SELECT (SELECT w.id FROM relais_waiting AS w INDEXED BY relais_waiting_key
        WHERE w.destination = ?1 AND w.msg_key = ?2 AND w.holds_key
        ORDER BY w.id
        LIMIT 1),
       EXISTS (SELECT 1 FROM relais_parked_key
               WHERE origin = 'outbox' AND destination = ?1 AND msg_key = ?2)
