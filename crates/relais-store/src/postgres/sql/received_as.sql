-- Sources are walked by the unique index, so that a message id alone finds its rows without reading the
-- table.
WITH RECURSIVE source (name) AS (
    SELECT min(source_system) FROM relais_inbox
    UNION ALL
    SELECT (SELECT min(i.source_system) FROM relais_inbox AS i WHERE i.source_system > source.name)
    FROM source
    WHERE source.name IS NOT NULL)
SELECT m.id, m.message_id, m.source_system, m.topic, m.partition_num, m.offset_num, m.key_str, m.msg_key,
       m.lane, m.aggregate_id, m.event_type, m.payload, m.headers, m.raw_payload_base64, m.event_ts,
       m.received_at, m.status, m.attempts, m.next_attempt_at, m.processed_at, m.error_stage,
       m.error_code, m.error_message, m.lost_workers, m.unknown_since
FROM source CROSS JOIN LATERAL (
    SELECT * FROM relais_inbox AS i
    WHERE i.source_system = source.name AND i.message_id = $1) AS m
ORDER BY m.id
LIMIT $2
