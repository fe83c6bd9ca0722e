-- Differs from postgres: rows in trouble are found by their partial index in a part of their own,
-- because SQLite uses such an index only where the statement itself names the states.
SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key,
       i.lane, i.aggregate_id, i.event_type, i.payload, i.headers, i.raw_payload_base64, i.event_ts,
       i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at, i.error_stage,
       i.error_code, i.error_message
FROM relais_inbox AS i
WHERE i.id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_inbox AS t
        WHERE ?1 IN ('FAILED', 'SERDE_ERROR', 'RETRY')
          AND t.status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND t.status = ?1
          AND (?2 IS NULL OR t.event_type = ?2)
          AND (?3 IS NULL OR t.msg_key = ?3)
          AND (?4 IS NULL OR t.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND (?5 IS NULL OR t.id < ?5)
        ORDER BY t.id DESC
        LIMIT ?6)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_inbox AS a
        WHERE (?1 IS NULL OR ?1 NOT IN ('FAILED', 'SERDE_ERROR', 'RETRY'))
          AND (?1 IS NULL OR a.status = ?1)
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND (?5 IS NULL OR a.id < ?5)
        ORDER BY a.id DESC
        LIMIT ?6))
ORDER BY i.id DESC
