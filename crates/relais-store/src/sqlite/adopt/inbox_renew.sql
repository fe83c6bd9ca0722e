-- The waiting copy of a handler gets what the row has now, and a new id: if it is in flight, its settlement finds no
-- row. Differs from postgres: the new row replaces the old one, which has the same message id.
INSERT OR REPLACE INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key,
                                     aggregate_id, event_type, payload, headers, event_ts, received_at,
                                     next_attempt_at, adopted_by, adopted_key)
SELECT message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, aggregate_id, event_type,
       coalesce(?2, payload), headers, event_ts, received_at, ?3, adopted_by, adopted_key
FROM relais_inbox
WHERE id = ?1 AND status IN ('RECEIVED', 'RETRY')
