-- In two parts, because each has its own small index. Rows that wait behind a parked key are counted apart
-- and are not the oldest. They are looked for only where keys are parked, among the first $1 rows of each
-- part: with more rows their number is a lower bound, and the oldest is not older than what is shown.
WITH scope AS MATERIALIZED (
    SELECT DISTINCT destination FROM relais_parked_key WHERE origin = 'outbox'),
looked AS MATERIALIZED (
    SELECT s.destination, o.created_at, p.msg_key IS NOT NULL AS parked
    FROM scope AS s
    CROSS JOIN LATERAL (
        (SELECT f.msg_key, f.created_at FROM relais_outbox AS f
         WHERE f.destination = s.destination AND f.status = 'PENDING' AND f.next_attempt_at IS NULL
         ORDER BY f.id + 0
         LIMIT $1)
        UNION ALL
        (SELECT w.msg_key, w.created_at FROM relais_outbox AS w
         WHERE w.destination = s.destination AND w.status = 'PENDING' AND w.next_attempt_at IS NOT NULL
         ORDER BY w.next_attempt_at
         LIMIT $1)) AS o
    LEFT JOIN relais_parked_key AS p
        ON p.origin = 'outbox' AND p.destination = s.destination AND p.msg_key = o.msg_key),
behind AS MATERIALIZED (
    SELECT destination, count(*) AS seen, count(*) FILTER (WHERE parked) AS parked,
           min(created_at) FILTER (WHERE NOT parked) AS oldest, max(created_at) AS last
    FROM looked
    GROUP BY destination),
pending AS (
    SELECT destination, sum(amount)::bigint AS amount, min(oldest) AS oldest
    FROM (SELECT destination, count(*) AS amount, min(created_at) AS oldest FROM relais_outbox
          WHERE status = 'PENDING' AND next_attempt_at IS NULL GROUP BY destination
          UNION ALL
          SELECT destination, count(*), min(created_at) FROM relais_outbox
          WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL GROUP BY destination) AS part
    GROUP BY destination)
SELECT a.destination, a.amount AS pending,
       CASE WHEN b.destination IS NULL THEN a.oldest
            ELSE coalesce(b.oldest, CASE WHEN a.amount > b.seen THEN b.last END) END AS oldest,
       coalesce(b.parked, 0) AS parked
FROM pending AS a
LEFT JOIN behind AS b ON b.destination = a.destination
ORDER BY a.destination
