-- As in postgres: the other content under a message id of its own, from where the first came.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str,
                          msg_key, aggregate_id, event_type, payload, headers, event_ts)
SELECT ?2, d.source_system, coalesce(i.topic, ''), coalesce(i.partition_num, 0),
       coalesce(i.offset_num, 0), i.key_str, d.msg_key, i.aggregate_id, d.event_type, d.payload,
       d.headers, i.event_ts
FROM relais_dead_letter AS d LEFT JOIN relais_inbox AS i ON i.id = d.origin_id
WHERE d.id = ?1
ON CONFLICT (source_system, message_id) DO NOTHING
