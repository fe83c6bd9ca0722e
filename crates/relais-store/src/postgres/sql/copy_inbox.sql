-- Copies of rows ($1) for other inboxes ($2), in the order given: rows of a key come in the order in which
-- they were handled. An inbox that has the message already gets no second one.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key,
                          aggregate_id, event_type, payload, headers, event_ts, received_at)
SELECT i.message_id,
       c.inbox || '::' || CASE WHEN strpos(i.source_system, '::') > 0
                               THEN substr(i.source_system, strpos(i.source_system, '::') + 2)
                               ELSE i.source_system END,
       i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key, i.aggregate_id, i.event_type,
       i.payload, i.headers, i.event_ts, i.received_at
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS c (id, inbox, place)
JOIN relais_inbox AS i ON i.id = c.id
ORDER BY c.place
ON CONFLICT (source_system, message_id) DO NOTHING
