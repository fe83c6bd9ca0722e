-- Differs from postgres: no join that stops early. What waits is counted among the first ?2 open rows
-- of each kind: rows that wait behind a dead letter are the oldest.
WITH parked (origin, destination, msg_key, parked_at, dead_letter_id) AS MATERIALIZED (
    SELECT origin, destination, msg_key, parked_at, dead_letter_id FROM relais_parked_key
    ORDER BY parked_at, origin, destination, msg_key
    LIMIT ?1),
waiting (origin, destination, msg_key) AS (
    SELECT 'inbox', inbox, msg_key FROM (
        SELECT i.inbox, i.msg_key FROM relais_inbox AS i INDEXED BY relais_inbox_fresh
        WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL
          AND (SELECT count(*) FROM parked WHERE origin = 'inbox') > 0
        ORDER BY i.id
        LIMIT ?2)
    UNION ALL
    SELECT 'inbox', inbox, msg_key FROM (
        SELECT i.inbox, i.msg_key FROM relais_inbox AS i INDEXED BY relais_inbox_due
        WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NOT NULL
          AND (SELECT count(*) FROM parked WHERE origin = 'inbox') > 0
        LIMIT ?2)
    UNION ALL
    SELECT 'outbox', destination, msg_key FROM (
        SELECT o.destination, o.msg_key
        FROM (SELECT DISTINCT p.destination,
                     coalesce((SELECT q.position FROM relais_outbox_position AS q
                               WHERE q.destination = p.destination), 0) AS position
              FROM parked AS p
              WHERE p.origin = 'outbox') AS placed
        CROSS JOIN relais_outbox AS o INDEXED BY relais_outbox_destination
        WHERE o.destination = placed.destination AND o.id > placed.position AND o.status = 'PENDING'
          AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id)
        LIMIT ?2)
    UNION ALL
    SELECT 'outbox', destination, msg_key FROM (
        SELECT w.destination, w.msg_key
        FROM parked AS p
        CROSS JOIN relais_waiting AS w INDEXED BY relais_waiting_key
        WHERE p.origin = 'outbox' AND w.destination = p.destination AND w.msg_key = p.msg_key
        LIMIT ?2)),
backlog (origin, destination, msg_key, amount) AS MATERIALIZED (
    SELECT origin, destination, msg_key, count(*) FROM waiting GROUP BY origin, destination, msg_key)
SELECT p.origin, p.destination, p.msg_key, p.parked_at, p.dead_letter_id,
       coalesce(b.amount, 0) AS backlog
FROM parked AS p
LEFT JOIN backlog AS b
    ON b.origin = p.origin AND b.destination = p.destination AND b.msg_key = p.msg_key
ORDER BY p.parked_at, p.origin, p.destination, p.msg_key
