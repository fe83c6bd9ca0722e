-- $2 is the same id as relais writes it, if it is a UUID. The order is that of no index, so that the planner does not walk
-- all dead letters in it.
SELECT id, origin, origin_id, message_id, source_system, destination, event_type, msg_key, payload,
       headers, failed_status, error_class, error_message, attempts, parked_by, parked_at,
       original_payload, edited_by, edited_at, resolution, resolved_by, resolved_at, reason
FROM relais_dead_letter
WHERE hashtextextended(message_id, 0)
      IN (hashtextextended($1 COLLATE "C", 0), hashtextextended($2 COLLATE "C", 0))
  AND message_id IN ($1, $2)
ORDER BY parked_at + INTERVAL '0', id
LIMIT $3
