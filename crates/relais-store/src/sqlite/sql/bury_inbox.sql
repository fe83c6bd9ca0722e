-- Differs from postgres: the id is made by the caller; the row was marked FAILED just before.
INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, source_system, destination, event_type, msg_key,
                                payload, headers, failed_status, error_class, error_message, attempts,
                                parked_by)
SELECT ?1, 'inbox', id, message_id, source_system, nullif(inbox, ''), event_type, msg_key, payload, headers, status,
       error_code, error_message, attempts, ?3
FROM relais_inbox
WHERE id = ?2
