-- Differs from postgres: the database's now is text. The oldest open row is the one with the lowest
-- id, because ids commit in order.
WITH looked (received_at, is_parked) AS MATERIALIZED (
    SELECT received_at, EXISTS (SELECT 1 FROM relais_parked_key AS p
                                WHERE p.origin = 'inbox' AND p.destination = o.inbox AND p.msg_key = o.msg_key)
    FROM (SELECT received_at, msg_key, inbox FROM (
              SELECT i.received_at, i.msg_key, i.inbox FROM relais_inbox AS i INDEXED BY relais_inbox_fresh
              WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL
                AND (SELECT count(*) FROM relais_parked_key WHERE origin = 'inbox') > 0
              ORDER BY i.id
              LIMIT ?1)
          UNION ALL
          SELECT received_at, msg_key, inbox FROM (
              SELECT i.received_at, i.msg_key, i.inbox FROM relais_inbox AS i INDEXED BY relais_inbox_due
              WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NOT NULL
                AND (SELECT count(*) FROM relais_parked_key WHERE origin = 'inbox') > 0
              LIMIT ?1)) AS o),
behind (seen, parked, oldest, last) AS MATERIALIZED (
    SELECT count(*), coalesce(sum(is_parked), 0), min(CASE WHEN is_parked THEN NULL ELSE received_at END),
           max(received_at)
    FROM looked)
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now,
       (SELECT coalesce(max(version), 0) FROM relais_schema) AS schema_version,
       (SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL) AS dead_letters_open,
       (SELECT count(*) FROM relais_parked_key) AS parked_keys,
       (SELECT count(*) FROM relais_timer
        WHERE due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) AS timers_due,
       CASE WHEN behind.seen > 0
            THEN coalesce(behind.oldest, CASE WHEN behind.seen >= ?1 THEN behind.last END)
            ELSE (SELECT received_at FROM relais_inbox WHERE id = (
                      SELECT min(id) FROM (
                          SELECT min(id) AS id FROM relais_inbox
                          WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                          UNION ALL
                          SELECT min(id) FROM relais_inbox INDEXED BY relais_inbox_due
                          WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL))) END AS inbox_oldest,
       behind.parked AS inbox_parked,
       (SELECT count(*) FROM relais_dead_letter WHERE origin = 'process' AND resolved_at IS NULL)
           AS processes_need_operator
FROM behind
