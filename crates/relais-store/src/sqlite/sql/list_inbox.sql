-- Differs from postgres: rows in trouble are found by their partial index in a part of their own,
-- because SQLite uses such an index only where the statement itself names the states.
-- Rows that wait are found by their own indexes while there are no more than ?11 of them; else among the
-- newest. LIMIT 0 and conditions on parameters alone keep a part from being read at all.
WITH few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'RECEIVED'
           AND (SELECT count(*) <= ?11 FROM (
                    SELECT 1 FROM relais_inbox INDEXED BY relais_inbox_fresh
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                    LIMIT ?11 + 1))
           AND (SELECT count(*) <= ?11 FROM (
                    SELECT 1 FROM relais_inbox INDEXED BY relais_inbox_due
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
                    LIMIT ?11 + 1)))
SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key,
       i.lane, i.aggregate_id, i.event_type,
       iif(?9 IS NULL, i.payload, substr(i.payload, 1, ?9)) AS payload, i.headers,
       iif(?9 IS NULL, i.raw_payload_base64, substr(i.raw_payload_base64, 1, ?9)) AS raw_payload_base64,
       i.event_ts,
       i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at, i.error_stage,
       i.error_code, i.error_message, i.lost_workers, i.unknown_since,
       coalesce(octet_length(i.payload), octet_length(rtrim(i.raw_payload_base64, '=')) * 3 / 4)
           AS payload_bytes
FROM relais_inbox AS i
WHERE i.id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_inbox AS t
        WHERE ?1 IN ('FAILED', 'SERDE_ERROR', 'RETRY')
          AND t.status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND t.status = ?1
          AND (?2 IS NULL OR t.event_type = ?2)
          AND (?3 IS NULL OR t.msg_key = ?3)
          AND (?4 IS NULL OR t.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND t.id < coalesce(?5, 9223372036854775807) AND t.id >= coalesce(?10, 0)
          AND (?7 IS NULL OR t.source_system = ?7)
          AND (?8 IS NULL OR t.error_code = ?8)
        ORDER BY t.id DESC
        LIMIT ?6)
    UNION ALL
    SELECT id FROM (
        SELECT f.id FROM relais_inbox AS f INDEXED BY relais_inbox_fresh
        WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
          AND f.status = ?1
          AND (?2 IS NULL OR f.event_type = ?2)
          AND (?3 IS NULL OR f.msg_key = ?3)
          AND (?4 IS NULL OR f.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND f.id < coalesce(?5, 9223372036854775807) AND f.id >= coalesce(?10, 0)
          AND (?7 IS NULL OR f.source_system = ?7)
          AND (?8 IS NULL OR f.error_code = ?8)
        ORDER BY f.id DESC
        LIMIT iif((SELECT yes FROM few), ?6, 0))
    UNION ALL
    SELECT id FROM (
        SELECT l.id FROM relais_inbox AS l INDEXED BY relais_inbox_due
        WHERE l.status IN ('RECEIVED', 'RETRY') AND l.next_attempt_at IS NOT NULL
          AND l.status = ?1
          AND (?2 IS NULL OR l.event_type = ?2)
          AND (?3 IS NULL OR l.msg_key = ?3)
          AND (?4 IS NULL OR l.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND l.id < coalesce(?5, 9223372036854775807) AND l.id >= coalesce(?10, 0)
          AND (?7 IS NULL OR l.source_system = ?7)
          AND (?8 IS NULL OR l.error_code = ?8)
        ORDER BY l.id DESC
        LIMIT iif((SELECT yes FROM few), ?6, 0))
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_inbox AS a
        WHERE (?1 IS NULL OR ?1 NOT IN ('FAILED', 'SERDE_ERROR', 'RETRY'))
          AND (?1 IS NULL OR a.status = ?1)
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND a.id < coalesce(?5, 9223372036854775807) AND a.id >= coalesce(?10, 0)
          AND (?7 IS NULL OR a.source_system = ?7)
          AND (?8 IS NULL OR a.error_code = ?8)
        ORDER BY a.id DESC
        LIMIT iif((SELECT yes FROM few), 0, ?6)))
ORDER BY i.id DESC
LIMIT ?6
