-- Sent with its values each time, so that the planner sees which filters are set.
SELECT id, message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, lane,
       aggregate_id, event_type, payload, headers, raw_payload_base64, event_ts, received_at, status,
       attempts, next_attempt_at, processed_at, error_stage, error_code, error_message
FROM relais_inbox
WHERE ($1::text IS NULL OR status = $1)
  AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR msg_key = $3)
  AND ($4::bigint IS NULL OR received_at >= now() - $4 * INTERVAL '1 second')
  AND ($5::bigint IS NULL OR id < $5)
ORDER BY id DESC
LIMIT $6
