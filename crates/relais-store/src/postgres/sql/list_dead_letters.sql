-- Sent with its values each time, so that the planner sees which filters are set. Down to $11, OFFSET 0 keeps
-- it from judging by them: whatever they are, the walk along the index is short.
WITH page (id) AS (
    (SELECT id FROM relais_dead_letter
     WHERE $11::uuid IS NULL
       AND ($1::text IS NULL
            OR ($1 = 'open' AND resolved_at IS NULL) OR ($1 = 'resolved' AND resolved_at IS NOT NULL))
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL
            OR (hashtextextended(msg_key, 0) = hashtextextended($3 COLLATE "C", 0) AND msg_key = $3))
       AND ($4::bigint IS NULL OR parked_at >= now() - $4 * INTERVAL '1 second')
       AND ($5::uuid IS NULL
            OR (parked_at, id) < ((SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = $5), $5))
       AND ($7::text IS NULL OR destination = $7)
       AND ($8::text IS NULL OR source_system = $8)
       AND ($9::text IS NULL OR error_class = $9)
     ORDER BY parked_at DESC, id DESC
     LIMIT $6)
    UNION ALL
    (SELECT id
     FROM (SELECT * FROM relais_dead_letter
           WHERE $11 IS NOT NULL
             AND ($1::text IS NULL
                  OR ($1 = 'open' AND resolved_at IS NULL) OR ($1 = 'resolved' AND resolved_at IS NOT NULL))
             AND ($5::uuid IS NULL
                  OR (parked_at, id)
                     < ((SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = $5), $5))
             AND (parked_at, id)
                 >= ((SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = $11), $11)
           ORDER BY parked_at DESC, id DESC
           OFFSET 0) AS looked
     WHERE ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR parked_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR destination = $7)
       AND ($8::text IS NULL OR source_system = $8)
       AND ($9::text IS NULL OR error_class = $9)
     ORDER BY parked_at DESC, id DESC
     LIMIT $6))
SELECT id, origin, origin_id, message_id, source_system, destination, event_type, msg_key,
       CASE WHEN $10::int IS NULL THEN payload ELSE left(payload, $10) END AS payload,
       headers, failed_status, error_class, error_message, attempts, parked_by, parked_at,
       CASE WHEN $10::int IS NULL THEN original_payload ELSE left(original_payload, $10) END AS original_payload,
       edited_by, edited_at, resolution, resolved_by, resolved_at, reason,
       octet_length(payload) AS payload_bytes
FROM relais_dead_letter
WHERE id IN (SELECT id FROM page)
ORDER BY parked_at DESC, id DESC
LIMIT $6
