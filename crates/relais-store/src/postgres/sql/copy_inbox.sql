-- Copies of rows ($1) for other inboxes ($2), in the order given: rows of a key come in the order in which
-- they were handled. An inbox that has the message already gets no second one. The only copy of a row of an adopted
-- table takes its link along, also one that is there already. Returns the copies that are linked, and whether they
-- are settled.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key,
                          aggregate_id, event_type, payload, headers, event_ts, received_at, adopted_by, adopted_key)
SELECT i.message_id,
       c.inbox || '::' || CASE WHEN strpos(i.source_system, '::') > 0
                               THEN substr(i.source_system, strpos(i.source_system, '::') + 2)
                               ELSE i.source_system END,
       i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key, i.aggregate_id, i.event_type,
       i.payload, i.headers, i.event_ts, i.received_at,
       CASE WHEN c.copies = 1 THEN i.adopted_by END, CASE WHEN c.copies = 1 THEN i.adopted_key END
FROM (SELECT id, inbox, place, count(*) OVER (PARTITION BY id) AS copies
      FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS u (id, inbox, place)) AS c
JOIN relais_inbox AS i ON i.id = c.id
ORDER BY c.place
ON CONFLICT (source_system, message_id) DO UPDATE
SET adopted_by = excluded.adopted_by, adopted_key = excluded.adopted_key
WHERE excluded.adopted_by IS NOT NULL
RETURNING id, adopted_by IS NOT NULL AND status NOT IN ('RECEIVED', 'RETRY')
