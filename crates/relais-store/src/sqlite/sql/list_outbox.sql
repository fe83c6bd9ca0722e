-- Differs from postgres: failed rows are found by their dead letters.
-- Pending rows are found behind the positions of the destinations and in relais_waiting while each has no more than
-- ?11 of them; else among the newest. LIMIT 0 and conditions on parameters alone keep a part from being read at all.
WITH RECURSIVE destination (name) AS (
    SELECT min(o.destination) FROM relais_outbox AS o
    UNION ALL
    SELECT (SELECT min(o.destination) FROM relais_outbox AS o WHERE o.destination > destination.name)
    FROM destination
    WHERE destination.name IS NOT NULL),
placed (name, position) AS MATERIALIZED (
    SELECT name, coalesce((SELECT p.position FROM relais_outbox_position AS p WHERE p.destination = name), 0)
    FROM destination
    WHERE name IS NOT NULL),
few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'PENDING'
           AND (SELECT count(*) <= ?11 FROM (
                    SELECT 1 FROM placed
                    CROSS JOIN relais_outbox AS f INDEXED BY relais_outbox_destination
                    WHERE f.destination = placed.name AND f.id > placed.position AND f.status = 'PENDING'
                      AND ?1 IS 'PENDING'
                    LIMIT ?11 + 1))
           AND (SELECT count(*) <= ?11 FROM (SELECT 1 FROM relais_waiting LIMIT ?11 + 1)))
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       iif(?9 IS NULL, o.payload, substr(o.payload, 1, ?9)) AS payload, o.headers, o.destination, o.msg_key,
       o.lane, o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id,
       o.causation_id, o.correlation_id, o.error_code, o.error_message, o.lost_workers,
       octet_length(o.payload) AS payload_bytes
FROM relais_outbox AS o
WHERE o.id IN (
    SELECT id FROM (
        SELECT t.id
        FROM relais_dead_letter AS d INDEXED BY relais_dead_letter_failed
        CROSS JOIN relais_outbox AS t ON t.id = d.origin_id
        WHERE ?1 = 'FAILED' AND d.origin = 'outbox'
          AND (d.resolved_at IS NULL OR d.resolution = 'discarded')
          AND d.origin_id < coalesce(?6, 9223372036854775807) AND d.origin_id >= coalesce(?10, 0)
          AND t.status = 'FAILED'
          AND (?2 IS NULL OR t.event_type = ?2)
          AND (?3 IS NULL OR t.msg_key = ?3)
          AND (?4 IS NULL OR t.destination = ?4)
          AND (?5 IS NULL OR t.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND t.id < coalesce(?6, 9223372036854775807) AND t.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR t.error_code = ?8)
        ORDER BY d.origin_id DESC
        LIMIT ?7)
    UNION ALL
    SELECT id FROM (
        SELECT f.id
        FROM placed
        CROSS JOIN relais_outbox AS f INDEXED BY relais_outbox_destination
        WHERE f.destination = placed.name AND f.id > placed.position AND f.status = 'PENDING'
          AND (?2 IS NULL OR f.event_type = ?2)
          AND (?3 IS NULL OR f.msg_key = ?3)
          AND (?4 IS NULL OR f.destination = ?4)
          AND (?5 IS NULL OR f.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND f.id < coalesce(?6, 9223372036854775807) AND f.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR f.error_code = ?8)
        ORDER BY f.id DESC
        LIMIT iif((SELECT yes FROM few), ?7, 0))
    UNION ALL
    SELECT id FROM (
        SELECT l.id
        FROM relais_waiting AS w
        CROSS JOIN relais_outbox AS l ON l.id = w.id
        WHERE l.status = 'PENDING'
          AND (?2 IS NULL OR l.event_type = ?2)
          AND (?3 IS NULL OR l.msg_key = ?3)
          AND (?4 IS NULL OR l.destination = ?4)
          AND (?5 IS NULL OR l.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND l.id < coalesce(?6, 9223372036854775807) AND l.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR l.error_code = ?8)
        ORDER BY w.id DESC
        LIMIT iif((SELECT yes FROM few), ?7, 0))
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_outbox AS a
        WHERE ?1 IS NOT 'FAILED' AND (?1 IS NULL OR a.status = ?1)
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.destination = ?4)
          AND (?5 IS NULL OR a.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND a.id < coalesce(?6, 9223372036854775807) AND a.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR a.error_code = ?8)
        ORDER BY a.id DESC
        LIMIT iif((SELECT yes FROM few), 0, ?7)))
ORDER BY o.id DESC
LIMIT ?7
