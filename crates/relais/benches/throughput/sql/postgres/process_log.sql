INSERT INTO relais_process_log (process_id, seq, event_type, event, message_id)
SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[])
