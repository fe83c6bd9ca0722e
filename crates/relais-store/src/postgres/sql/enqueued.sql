-- The rows of messages that were there before, in this order. Refused if one of them is another message.
SELECT CASE WHEN sha256(convert_to(json_build_array(m.event_type, m.msg_key, m.payload)::text, 'UTF8'))
                 = ANY (s.contents)
            THEN s.id
            WHEN s.id IS NOT NULL
            THEN relais_refuse_id(m.event_type, m.message_id, m.destination) END
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
     AS m (message_id, destination, event_type, msg_key, payload, place)
LEFT JOIN relais_sent AS s ON s.message_id = m.message_id AND s.destination = m.destination
ORDER BY m.place
