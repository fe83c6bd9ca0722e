-- The same message id with other content, for an operator to decide. The id is made from the content,
-- so the same conflict is kept once, however often and wherever it comes.
INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, source_system, event_type, msg_key,
                                payload, headers, failed_status, error_class, error_message, parked_by)
SELECT id, 'inbox', origin_id, message_id, source_system, event_type, msg_key, payload, headers,
       'CONFLICT', 'CONFLICT', 'the same message id came before with other content', 'accept'
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[])
     AS m (id, origin_id, message_id, source_system, event_type, msg_key, payload, headers)
ON CONFLICT (id) DO NOTHING
