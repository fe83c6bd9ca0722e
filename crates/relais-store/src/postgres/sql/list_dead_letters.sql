-- Sent with its values each time, so that the planner sees which filters are set.
SELECT id, origin, origin_id, message_id, source_system, destination, event_type, msg_key, payload,
       headers, failed_status, error_class, error_message, attempts, parked_by, parked_at,
       original_payload, edited_by, edited_at, resolution, resolved_by, resolved_at, reason
FROM relais_dead_letter
WHERE ($1::text IS NULL
       OR ($1 = 'open' AND resolved_at IS NULL) OR ($1 = 'resolved' AND resolved_at IS NOT NULL))
  AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL
       OR (hashtextextended(msg_key, 0) = hashtextextended($3 COLLATE "C", 0) AND msg_key = $3))
  AND ($4::bigint IS NULL OR parked_at >= now() - $4 * INTERVAL '1 second')
  AND ($5::uuid IS NULL
       OR (parked_at, id) < (SELECT b.parked_at, b.id FROM relais_dead_letter AS b WHERE b.id = $5))
  AND ($7::text IS NULL OR destination = $7)
ORDER BY parked_at DESC, id DESC
LIMIT $6
