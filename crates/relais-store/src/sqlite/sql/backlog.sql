-- The pending rows of a destination: fresh ones behind its position (?2) and waiting ones. The first ?3 fresh rows
-- are read; of the others only the entries of the index are counted. Rows behind parked keys are in no age: of
-- waiting rows ?3 are read to find the oldest of the others.
WITH looked (created_at, is_parked) AS MATERIALIZED (
    SELECT f.created_at, EXISTS (SELECT 1 FROM relais_parked_key AS p
                                 WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = f.msg_key)
    FROM (SELECT o.created_at, o.msg_key
          FROM relais_outbox AS o INDEXED BY relais_outbox_destination
          WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
            AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id)
          ORDER BY o.id
          LIMIT ?3) AS f),
fresh (amount, parked, oldest, last) AS MATERIALIZED (
    SELECT count(*), coalesce(sum(is_parked), 0), min(CASE WHEN is_parked THEN NULL ELSE created_at END),
           max(created_at)
    FROM looked),
beyond (amount) AS MATERIALIZED (
    SELECT CASE WHEN fresh.amount < ?3 THEN 0
                ELSE (SELECT count(*) FROM relais_outbox AS o
                      WHERE o.destination = ?1 AND o.id > (
                          SELECT o.id FROM relais_outbox AS o INDEXED BY relais_outbox_destination
                          WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
                            AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id)
                          ORDER BY o.id
                          LIMIT 1 OFFSET ?3 - 1))
                     - (SELECT count(*) FROM relais_waiting AS w WHERE w.destination = ?1 AND w.id > ?2) END
    FROM fresh),
behind (amount) AS MATERIALIZED (
    SELECT coalesce(sum((SELECT count(*) FROM relais_waiting AS w
                         WHERE w.destination = ?1 AND w.msg_key = p.msg_key)), 0)
    FROM relais_parked_key AS p
    WHERE p.origin = 'outbox' AND p.destination = ?1),
first_waiting (id) AS MATERIALIZED (
    SELECT min(w.id)
    FROM (SELECT id, msg_key FROM relais_waiting WHERE destination = ?1 LIMIT ?3) AS w
    WHERE NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                      WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = w.msg_key)),
waiting (amount, oldest) AS MATERIALIZED (
    SELECT (SELECT count(*) FROM relais_waiting WHERE destination = ?1),
           (SELECT o.created_at FROM relais_outbox AS o WHERE o.id = first_waiting.id)
    FROM first_waiting)
SELECT fresh.amount + max(beyond.amount, 0) + waiting.amount AS pending,
       coalesce(min(fresh.oldest, waiting.oldest), fresh.oldest, waiting.oldest,
                CASE WHEN fresh.amount >= ?3 THEN fresh.last END) AS oldest,
       fresh.parked + behind.amount AS parked
FROM fresh, beyond, behind, waiting
