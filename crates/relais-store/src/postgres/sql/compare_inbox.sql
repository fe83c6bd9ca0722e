-- The rows stored before under these ids, and whether their content is the same: the payload, or the
-- bytes that came. A repaired row has both, and what came may be decoded by now. The payload of an edited
-- row is in its dead letter.
SELECT m.place, i.id,
       coalesce(i.payload = m.payload, FALSE)
       OR coalesce(i.raw_payload_base64 = m.raw_payload_base64, FALSE)
       OR EXISTS (SELECT FROM relais_dead_letter AS d
                  WHERE d.origin = 'inbox' AND d.origin_id = i.id AND d.failed_status <> 'CONFLICT'
                    AND d.original_payload = m.payload) AS same
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
     AS m (source_system, message_id, payload, raw_payload_base64, place)
JOIN relais_inbox AS i ON i.source_system = m.source_system AND i.message_id = m.message_id
