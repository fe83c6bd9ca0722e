-- Sent with its values each time, so that the planner sees which filters are set. Down to $11, OFFSET 0 keeps
-- it from judging by them: whatever they are, the walk along the index is short.
WITH page (id, parked_at) AS (
    (SELECT id, parked_at FROM relais_dead_letter
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
    (SELECT id, parked_at
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
SELECT d.id, d.origin, d.origin_id, d.message_id, d.source_system, d.destination, d.event_type, d.msg_key,
       CASE WHEN $10::int IS NULL THEN d.payload ELSE left(d.payload, $10) END AS payload,
       d.headers, d.failed_status, d.error_class, d.error_message, d.attempts, d.parked_by, d.parked_at,
       CASE WHEN $10::int IS NULL THEN d.original_payload ELSE left(d.original_payload, $10) END AS original_payload,
       d.edited_by, d.edited_at, d.resolution, d.resolved_by, d.resolved_at, d.reason,
       octet_length(d.payload) AS payload_bytes
FROM (SELECT id, parked_at FROM page ORDER BY parked_at DESC, id DESC LIMIT $6) AS p
JOIN relais_dead_letter AS d ON d.id = p.id
ORDER BY p.parked_at DESC, p.id DESC
