-- Differs from postgres: fresh and waiting rows are counted by their own partial index each; the
-- oldest row is the one with the lowest id, because ids commit in order. Rows behind parked keys are looked
-- for among the first ?1 rows of each part, of all destinations together that have parked keys.
WITH looked (destination, created_at, msg_key) AS MATERIALIZED (
    SELECT destination, created_at, msg_key FROM (
        SELECT o.destination, o.created_at, o.msg_key FROM relais_outbox AS o INDEXED BY relais_outbox_fresh
        WHERE o.status = 'PENDING' AND o.next_attempt_at IS NULL
          AND o.destination IN (SELECT destination FROM relais_parked_key WHERE origin = 'outbox')
        LIMIT ?1)
    UNION ALL
    SELECT destination, created_at, msg_key FROM (
        SELECT o.destination, o.created_at, o.msg_key FROM relais_outbox AS o INDEXED BY relais_outbox_due
        WHERE o.status = 'PENDING' AND o.next_attempt_at IS NOT NULL
          AND o.destination IN (SELECT destination FROM relais_parked_key WHERE origin = 'outbox')
        LIMIT ?1)),
behind (destination, seen, parked, oldest, last) AS MATERIALIZED (
    SELECT destination, count(*), sum(is_parked), min(CASE WHEN is_parked THEN NULL ELSE created_at END),
           max(created_at)
    FROM (SELECT l.destination, l.created_at,
                 EXISTS (SELECT 1 FROM relais_parked_key AS p
                         WHERE p.origin = 'outbox' AND p.destination = l.destination
                           AND p.msg_key = l.msg_key) AS is_parked
          FROM looked AS l)
    GROUP BY destination)
SELECT b.destination, b.amount AS pending,
       CASE WHEN w.destination IS NULL
            THEN (SELECT o.created_at FROM relais_outbox AS o WHERE o.id = b.first_id)
            ELSE coalesce(w.oldest, CASE WHEN b.amount > w.seen THEN w.last END) END AS oldest,
       coalesce(w.parked, 0) AS parked
FROM (SELECT destination, sum(amount) AS amount, min(first_id) AS first_id
      FROM (SELECT destination, count(*) AS amount, min(id) AS first_id
            FROM relais_outbox
            WHERE status = 'PENDING' AND next_attempt_at IS NULL
            GROUP BY destination
            UNION ALL
            SELECT destination, count(*), min(id)
            FROM relais_outbox
            WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
            GROUP BY destination)
      GROUP BY destination) AS b
LEFT JOIN behind AS w ON w.destination = b.destination
ORDER BY b.destination
