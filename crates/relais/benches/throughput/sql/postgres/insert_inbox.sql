-- The same into relais's table; an existing id is not changed.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str,
                          msg_key, aggregate_id, event_type, payload, headers, event_ts)
SELECT id, 'bench', 'orders', 0, place, key, key, key, 'OrderChanged', payload,
       '{"event-type":"OrderChanged","message-id":"' || id || '"}', clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS m (id, key, payload, place)
ON CONFLICT (source_system, message_id) DO NOTHING
