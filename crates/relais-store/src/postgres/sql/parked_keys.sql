-- What waits behind a key is counted among the first $2 fresh rows and the first $2 with a time to wait
-- for: rows of a parked key stay there while others go. So with more open rows the number is a lower
-- bound; an index of open rows by their keys would cost every message more than it is worth.
WITH page AS MATERIALIZED (
    SELECT origin, destination, msg_key, parked_at, dead_letter_id
    FROM relais_parked_key
    ORDER BY parked_at, key_hash
    LIMIT $1),
scope AS MATERIALIZED (
    SELECT DISTINCT origin, destination FROM page),
open AS (
    SELECT s.origin, s.destination, i.msg_key
    FROM scope AS s
    CROSS JOIN LATERAL (
        (SELECT f.msg_key FROM relais_inbox AS f
         WHERE f.inbox = s.destination AND f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
         ORDER BY f.id + 0
         LIMIT $2)
        UNION ALL
        (SELECT w.msg_key FROM relais_inbox AS w
         WHERE w.inbox = s.destination AND w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
         ORDER BY w.next_attempt_at
         LIMIT $2)) AS i
    WHERE s.origin = 'inbox'
    UNION ALL
    SELECT s.origin, s.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C")
    FROM (SELECT p.destination, p.id, row_number() OVER (PARTITION BY p.destination, p.waits ORDER BY p.id) AS place
          FROM relais_pending AS p
          WHERE p.destination IN (SELECT destination FROM scope WHERE origin = 'outbox')) AS n
    JOIN scope AS s ON s.origin = 'outbox' AND s.destination = n.destination
    JOIN relais_outbox AS o ON o.id = n.id
    WHERE n.place <= $2),
backlog AS MATERIALIZED (
    SELECT origin, destination, msg_key, count(*) AS amount
    FROM open
    WHERE (origin, destination, msg_key) IN (SELECT origin, destination, msg_key FROM page)
    GROUP BY origin, destination, msg_key)
SELECT p.origin, p.destination, p.msg_key, p.parked_at, p.dead_letter_id,
       coalesce(b.amount, 0) AS backlog
FROM page AS p
LEFT JOIN backlog AS b
    ON b.origin = p.origin AND b.destination = p.destination AND b.msg_key = p.msg_key
ORDER BY p.parked_at, p.origin, p.destination, p.msg_key
