-- A batch of received messages, one array for each column. What was there before, or earlier in
-- this batch, is not changed.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str,
                          msg_key, aggregate_id, event_type, payload, headers, raw_payload_base64,
                          event_ts, status, error_stage, error_code, error_message)
SELECT message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, aggregate_id,
       event_type, payload, headers, raw_payload_base64, event_ts,
       CASE WHEN raw_payload_base64 IS NULL THEN 'RECEIVED' ELSE 'SERDE_ERROR' END,
       CASE WHEN raw_payload_base64 IS NULL THEN NULL ELSE 'CONSUMER_SERDE' END,
       error_code, error_message
FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
            $13::timestamptz[], $14::text[], $15::text[])
     WITH ORDINALITY
     AS m (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key,
           aggregate_id, event_type, payload, headers, raw_payload_base64, event_ts, error_code,
           error_message, place)
ORDER BY place
ON CONFLICT (source_system, message_id) DO NOTHING
RETURNING source_system, message_id
