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
    SELECT s.origin, s.destination, o.msg_key
    FROM scope AS s
    CROSS JOIN LATERAL (
        (SELECT f.msg_key FROM relais_outbox AS f
         WHERE f.destination = s.destination AND f.status = 'PENDING' AND f.next_attempt_at IS NULL
         ORDER BY f.id + 0
         LIMIT $2)
        UNION ALL
        (SELECT w.msg_key FROM relais_outbox AS w
         WHERE w.destination = s.destination AND w.status = 'PENDING' AND w.next_attempt_at IS NOT NULL
         ORDER BY w.next_attempt_at
         LIMIT $2)) AS o
    WHERE s.origin = 'outbox'),
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
