-- As into the plain table; an existing id is not changed.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str,
                          msg_key, aggregate_id, event_type, payload, headers, event_ts)
VALUES (?1, 'bench', 'orders', 0, 0, ?2, ?2, ?2, 'OrderChanged', ?3,
        '{"event-type":"OrderChanged","message-id":"' || ?1 || '"}', '2026-11-15T12:00:00.123Z')
ON CONFLICT (source_system, message_id) DO NOTHING
