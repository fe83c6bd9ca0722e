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
        SELECT o.destination, o.msg_key FROM relais_outbox AS o INDEXED BY relais_outbox_fresh
        WHERE o.status = 'PENDING' AND o.next_attempt_at IS NULL
          AND o.destination IN (SELECT destination FROM parked WHERE origin = 'outbox')
        LIMIT ?2)
    UNION ALL
    SELECT 'outbox', destination, msg_key FROM (
        SELECT o.destination, o.msg_key FROM relais_outbox AS o INDEXED BY relais_outbox_due
        WHERE o.status = 'PENDING' AND o.next_attempt_at IS NOT NULL
          AND o.destination IN (SELECT destination FROM parked WHERE origin = 'outbox')
        LIMIT ?2)),
backlog (origin, destination, msg_key, amount) AS MATERIALIZED (
    SELECT origin, destination, msg_key, count(*) FROM waiting GROUP BY origin, destination, msg_key)
SELECT p.origin, p.destination, p.msg_key, p.parked_at, p.dead_letter_id,
       coalesce(b.amount, 0) AS backlog
FROM parked AS p
LEFT JOIN backlog AS b
    ON b.origin = p.origin AND b.destination = p.destination AND b.msg_key = p.msg_key
ORDER BY p.parked_at, p.origin, p.destination, p.msg_key
