-- Differs from postgres: sources are walked by the unique index as in find_inbox, without LATERAL.
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
FROM source CROSS JOIN relais_inbox AS i
WHERE i.source_system = source.name AND i.message_id = ?1
ORDER BY i.id
LIMIT ?2
