-- As in postgres.
SELECT d.id, d.origin, d.origin_id, d.message_id, d.source_system, d.destination, d.event_type,
       d.msg_key, d.payload, d.headers, d.failed_status, d.error_class, d.error_message, d.attempts,
       d.parked_by, d.parked_at, d.original_payload, d.edited_by, d.edited_at, d.resolution,
       d.resolved_by, d.resolved_at, d.reason
FROM relais_dead_letter AS d
WHERE d.id = ?1
