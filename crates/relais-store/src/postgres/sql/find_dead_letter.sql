SELECT id, origin, origin_id, message_id, source_system, destination, event_type, msg_key, payload,
       headers, failed_status, error_class, error_message, attempts, parked_by, parked_at,
       original_payload, edited_by, edited_at, resolution, resolved_by, resolved_at, reason
FROM relais_dead_letter
WHERE id = $1
