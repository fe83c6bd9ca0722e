-- Differs from postgres: failed rows are found by their partial index in a part of their own, because
-- SQLite uses such an index only where the statement itself names the state.
-- Rows that wait are found by their own indexes while there are no more than ?11 of them; else among the
-- newest. LIMIT 0 and conditions on parameters alone keep a part from being read at all.
WITH few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'PENDING'
           AND (SELECT count(*) <= ?11 FROM (
                    SELECT 1 FROM relais_outbox INDEXED BY relais_outbox_fresh
                    WHERE status = 'PENDING' AND next_attempt_at IS NULL
                    LIMIT ?11 + 1))
           AND (SELECT count(*) <= ?11 FROM (
                    SELECT 1 FROM relais_outbox INDEXED BY relais_outbox_due
                    WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
                    LIMIT ?11 + 1)))
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       iif(?9 IS NULL, o.payload, substr(o.payload, 1, ?9)) AS payload, o.headers, o.destination, o.msg_key,
       o.lane, o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id,
       o.causation_id, o.correlation_id, o.error_code, o.error_message, o.lost_workers,
       octet_length(o.payload) AS payload_bytes
FROM relais_outbox AS o
WHERE o.id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_outbox AS t
        WHERE ?1 = 'FAILED' AND t.status = 'FAILED'
          AND (?2 IS NULL OR t.event_type = ?2)
          AND (?3 IS NULL OR t.msg_key = ?3)
          AND (?4 IS NULL OR t.destination = ?4)
          AND (?5 IS NULL OR t.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND t.id < coalesce(?6, 9223372036854775807) AND t.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR t.error_code = ?8)
        ORDER BY t.id DESC
        LIMIT ?7)
    UNION ALL
    SELECT id FROM (
        SELECT f.id FROM relais_outbox AS f INDEXED BY relais_outbox_fresh
        WHERE f.status = 'PENDING' AND f.next_attempt_at IS NULL
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
        SELECT l.id FROM relais_outbox AS l INDEXED BY relais_outbox_due
        WHERE l.status = 'PENDING' AND l.next_attempt_at IS NOT NULL
          AND (?2 IS NULL OR l.event_type = ?2)
          AND (?3 IS NULL OR l.msg_key = ?3)
          AND (?4 IS NULL OR l.destination = ?4)
          AND (?5 IS NULL OR l.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND l.id < coalesce(?6, 9223372036854775807) AND l.id >= coalesce(?10, 0)
          AND (?8 IS NULL OR l.error_code = ?8)
        ORDER BY l.id DESC
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
