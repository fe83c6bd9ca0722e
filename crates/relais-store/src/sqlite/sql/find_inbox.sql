-- Differs from postgres: sources are walked by the unique index, so that a message id alone finds
-- its row without reading the table. A row's own id comes first, then the newest of the message id.
WITH RECURSIVE source (name) AS (
    SELECT min(source_system) FROM relais_inbox
    UNION ALL
    SELECT (SELECT min(source_system) FROM relais_inbox WHERE source_system > name)
    FROM source
    WHERE name IS NOT NULL)
SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key,
       i.lane, i.aggregate_id, i.event_type, i.payload, i.headers, i.raw_payload_base64, i.event_ts,
       i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at, i.error_stage,
       i.error_code, i.error_message, i.lost_workers, i.unknown_since
FROM relais_inbox AS i
WHERE i.id IN (
    SELECT ?1
    UNION ALL
    SELECT m.id FROM source CROSS JOIN relais_inbox AS m
    WHERE m.source_system = source.name AND m.message_id = ?2)
ORDER BY i.id IS ?1 DESC, i.id DESC
LIMIT 1
