INSERT INTO relais_process_log (process_id, seq, event_type, event, message_id)
SELECT process_id, seq, event_type, event, message_id
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
     AS e (process_id, seq, event_type, event, message_id, place)
ORDER BY place
