INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, aggregate_id,
                          event_type, payload, headers, raw_payload_base64, status, error_stage, error_message,
                          next_attempt_at, adopted_by, adopted_key)
SELECT :message_id, :source_system, :topic, 0, 0, :msg_key, :aggregate_id,
       :event_type, :payload, :headers, :raw, :status, :stage, :problem,
       :next_attempt, :name, :key
