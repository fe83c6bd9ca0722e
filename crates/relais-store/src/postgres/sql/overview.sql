-- The oldest open inbox row is the one with the lowest id: reception order, without a sort. Rows that wait
-- behind a parked key are counted apart, as in backlogs.
WITH parked AS MATERIALIZED (
    SELECT msg_key, destination FROM relais_parked_key WHERE origin = 'inbox'),
looked AS MATERIALIZED (
    SELECT i.received_at, p.msg_key IS NOT NULL AS parked
    FROM ((SELECT f.msg_key, f.inbox, f.received_at FROM relais_inbox AS f
           WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
           ORDER BY f.id + 0
           LIMIT $1)
          UNION ALL
          (SELECT w.msg_key, w.inbox, w.received_at FROM relais_inbox AS w
           WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
           ORDER BY w.next_attempt_at
           LIMIT $1)) AS i
    LEFT JOIN parked AS p ON p.msg_key = i.msg_key AND p.destination = i.inbox
    WHERE EXISTS (SELECT FROM parked)),
behind AS MATERIALIZED (
    SELECT count(*) AS seen, count(*) FILTER (WHERE parked) AS parked,
           min(received_at) FILTER (WHERE NOT parked) AS oldest, max(received_at) AS last
    FROM looked)
SELECT clock_timestamp() AS now,
       (SELECT coalesce(max(version), 0)::bigint FROM relais_schema) AS schema_version,
       (SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL) AS dead_letters_open,
       (SELECT count(*) FROM relais_parked_key) AS parked_keys,
       (SELECT count(*) FROM relais_timer WHERE due_at <= now()) AS timers_due,
       CASE WHEN behind.seen > 0
            THEN coalesce(behind.oldest, CASE WHEN behind.seen >= $1 THEN behind.last END)
            ELSE least((SELECT received_at FROM relais_inbox
                        WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                        ORDER BY id + 0 LIMIT 1),
                       (SELECT min(received_at) FROM relais_inbox
                        WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL)) END AS inbox_oldest,
       behind.parked AS inbox_parked,
       (SELECT count(*) FROM relais_dead_letter WHERE origin = 'process' AND resolved_at IS NULL)
           AS processes_need_operator
FROM behind
