-- Differs from postgres: one copy a statement; one transaction all the same. ?3: it is the only copy.
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, msg_key,
                          aggregate_id, event_type, payload, headers, event_ts, received_at, adopted_by, adopted_key)
SELECT i.message_id,
       ?2 || '::' || CASE WHEN instr(i.source_system, '::') > 0
                          THEN substr(i.source_system, instr(i.source_system, '::') + 2)
                          ELSE i.source_system END,
       i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key, i.aggregate_id, i.event_type,
       i.payload, i.headers, i.event_ts, i.received_at,
       CASE WHEN ?3 THEN i.adopted_by END, CASE WHEN ?3 THEN i.adopted_key END
FROM relais_inbox AS i
WHERE i.id = ?1
ON CONFLICT (source_system, message_id) DO UPDATE
SET adopted_by = excluded.adopted_by, adopted_key = excluded.adopted_key
WHERE excluded.adopted_by IS NOT NULL
RETURNING id, adopted_by IS NOT NULL AND status NOT IN ('RECEIVED', 'RETRY')
