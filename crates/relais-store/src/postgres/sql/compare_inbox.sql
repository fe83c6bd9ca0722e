-- The rows stored before under these ids, and whether their content is the same.
SELECT m.place, i.id,
       i.payload IS NOT DISTINCT FROM m.payload
       AND i.raw_payload_base64 IS NOT DISTINCT FROM m.raw_payload_base64 AS same
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
     AS m (source_system, message_id, payload, raw_payload_base64, place)
JOIN relais_inbox AS i ON i.source_system = m.source_system AND i.message_id = m.message_id
