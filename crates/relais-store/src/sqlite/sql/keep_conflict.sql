-- Differs from postgres: the id is made by the caller. Kept once for each content.
INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, source_system, event_type, msg_key,
                                payload, headers, failed_status, error_class, error_message, parked_by)
SELECT ?1, 'inbox', ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'CONFLICT', 'CONFLICT',
       'the same message id came before with other content', 'accept'
WHERE NOT EXISTS (SELECT 1 FROM relais_dead_letter AS d
                  WHERE d.origin = 'inbox' AND d.origin_id = ?2 AND d.failed_status = 'CONFLICT'
                    AND d.message_id = ?3 AND d.source_system = ?4
                    AND coalesce(d.original_payload, d.payload) IS ?7)
