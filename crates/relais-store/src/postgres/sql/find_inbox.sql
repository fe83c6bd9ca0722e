-- A row's own id comes first, then the newest of the message id. Sources are walked by the unique
-- index, so that a message id alone finds its row without reading the table.
WITH RECURSIVE source (name) AS (
    SELECT min(source_system) FROM relais_inbox
    UNION ALL
    SELECT (SELECT min(i.source_system) FROM relais_inbox AS i WHERE i.source_system > source.name)
    FROM source
    WHERE source.name IS NOT NULL)
SELECT id, message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, lane,
       aggregate_id, event_type, payload, headers, raw_payload_base64, event_ts, received_at, status,
       attempts, next_attempt_at, processed_at, error_stage, error_code, error_message, lost_workers, unknown_since
FROM relais_inbox
WHERE id IN (
    SELECT $1::bigint
    UNION ALL
    SELECT i.id FROM source CROSS JOIN LATERAL (
        SELECT id FROM relais_inbox WHERE source_system = source.name AND message_id = $2) AS i)
ORDER BY id IS NOT DISTINCT FROM $1 DESC, id DESC
LIMIT 1
