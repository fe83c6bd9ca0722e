-- Rows that wait behind a parked key are counted apart and are not the oldest. They are looked for only where keys
-- are parked, among the first $1 fresh and the first $1 waiting rows: with more rows their number is a lower
-- bound, and the oldest is not older than what is shown. Elsewhere the oldest row is the first one of each kind.
WITH pending AS MATERIALIZED (
    SELECT destination, count(*) AS amount, min(id) FILTER (WHERE NOT waits) AS fresh,
           min(id) FILTER (WHERE waits) AS waiting
    FROM relais_pending
    GROUP BY destination),
scope AS MATERIALIZED (
    SELECT DISTINCT destination FROM relais_parked_key WHERE origin = 'outbox'),
open AS MATERIALIZED (
    SELECT n.destination, n.id
    FROM (SELECT p.destination, p.id, row_number() OVER (PARTITION BY p.destination, p.waits ORDER BY p.id) AS place
          FROM relais_pending AS p
          WHERE p.destination IN (SELECT destination FROM scope)) AS n
    WHERE n.place <= $1),
looked AS MATERIALIZED (
    SELECT w.destination, o.created_at, k.msg_key IS NOT NULL AS parked
    FROM open AS w
    JOIN relais_outbox AS o ON o.id = w.id
    LEFT JOIN relais_parked_key AS k
        ON k.origin = 'outbox' AND k.destination = w.destination
           AND k.key_hash = md5(coalesce(o.msg_key, o.aggregate_id COLLATE "C"))),
behind AS MATERIALIZED (
    SELECT destination, count(*) AS seen, count(*) FILTER (WHERE parked) AS parked,
           min(created_at) FILTER (WHERE NOT parked) AS oldest, max(created_at) AS last
    FROM looked
    GROUP BY destination)
SELECT a.destination, a.amount AS pending,
       CASE WHEN b.destination IS NULL
            THEN least((SELECT o.created_at FROM relais_outbox AS o WHERE o.id = a.fresh),
                       (SELECT o.created_at FROM relais_outbox AS o WHERE o.id = a.waiting))
            ELSE coalesce(b.oldest, CASE WHEN a.amount > b.seen THEN b.last END) END AS oldest,
       coalesce(b.parked, 0) AS parked
FROM pending AS a
LEFT JOIN behind AS b ON b.destination = a.destination
ORDER BY a.destination
