-- Rows that wait behind a parked key are counted apart and are not the oldest. They are looked for only where keys
-- are parked, among the first $1 fresh and the first $1 waiting rows: with more rows their number is a lower
-- bound, and the oldest is not older than what is shown. Elsewhere the oldest row is the first one of each kind.
--
-- Every pending row is above the position of its destination or waits, so no row is looked up in relais_waiting.
WITH RECURSIVE place (destination) AS (
    (SELECT o.destination FROM relais_outbox AS o ORDER BY o.destination, o.id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM relais_outbox AS o
            WHERE o.destination > place.destination
            ORDER BY o.destination, o.id
            LIMIT 1)
    FROM place
    WHERE place.destination IS NOT NULL),
start AS MATERIALIZED (
    SELECT place.destination, coalesce(p.position, 0) AS position
    FROM place
    LEFT JOIN relais_outbox_position AS p ON p.destination = place.destination
    WHERE place.destination IS NOT NULL),
above AS MATERIALIZED (
    SELECT start.destination, count(o.id) AS amount, min(o.id) AS first
    FROM start
    CROSS JOIN LATERAL (
        SELECT f.id FROM relais_outbox AS f
        WHERE (f.destination, f.id) > (start.destination, start.position)
          AND f.destination <= start.destination AND f.status = 'PENDING'
        ORDER BY f.destination, f.id
        OFFSET 0) AS o
    GROUP BY start.destination),
waits AS MATERIALIZED (
    SELECT w.destination, count(*) FILTER (WHERE w.id <= start.position) AS below, min(w.id) AS first
    FROM relais_waiting AS w
    JOIN start ON start.destination = w.destination
    GROUP BY w.destination),
pending AS MATERIALIZED (
    SELECT destination, coalesce(above.amount, 0) + coalesce(waits.below, 0) AS amount,
           above.first AS above, waits.first AS waiting
    FROM above
    FULL JOIN waits USING (destination)),
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
            THEN least((SELECT o.created_at FROM relais_outbox AS o WHERE o.id = a.above),
                       (SELECT o.created_at FROM relais_outbox AS o WHERE o.id = a.waiting))
            ELSE coalesce(b.oldest, CASE WHEN a.amount > b.seen THEN b.last END) END AS oldest,
       coalesce(b.parked, 0) AS parked
FROM pending AS a
LEFT JOIN behind AS b ON b.destination = a.destination
ORDER BY a.destination
