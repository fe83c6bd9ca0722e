-- Differs from postgres: times are text that sorts; open ones are found by their partial index in a
-- part of their own, because SQLite uses such an index only where the statement itself names them.
SELECT d.id, d.origin, d.origin_id, d.message_id, d.source_system, d.destination, d.event_type,
       d.msg_key, iif(?10 IS NULL, d.payload, substr(d.payload, 1, ?10)) AS payload, d.headers,
       d.failed_status, d.error_class, d.error_message, d.attempts, d.parked_by, d.parked_at,
       iif(?10 IS NULL, d.original_payload, substr(d.original_payload, 1, ?10)) AS original_payload,
       d.edited_by, d.edited_at, d.resolution, d.resolved_by, d.resolved_at, d.reason,
       octet_length(d.payload) AS payload_bytes
FROM relais_dead_letter AS d
WHERE d.id IN (
    SELECT id FROM (
        SELECT o.id FROM relais_dead_letter AS o INDEXED BY relais_dead_letter_open
        WHERE ?1 = 'open' AND o.resolved_at IS NULL
          AND (?2 IS NULL OR o.event_type = ?2)
          AND (?3 IS NULL OR o.msg_key = ?3)
          AND (?4 IS NULL OR o.destination = ?4)
          AND (?8 IS NULL OR o.source_system = ?8)
          AND (?9 IS NULL OR o.error_class = ?9)
          AND (?5 IS NULL OR o.parked_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (o.parked_at, o.id) < (
                  iif(?6 IS NULL, '~', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?6)),
                  coalesce(?6, ''))
          AND (o.parked_at, o.id) >= (
                  iif(?11 IS NULL, '', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?11)),
                  coalesce(?11, ''))
        ORDER BY o.parked_at DESC, o.id DESC
        LIMIT ?7)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_dead_letter AS a
        WHERE ?1 IS NOT 'open' AND (?1 IS NULL OR (?1 = 'resolved' AND a.resolved_at IS NOT NULL))
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.destination = ?4)
          AND (?8 IS NULL OR a.source_system = ?8)
          AND (?9 IS NULL OR a.error_class = ?9)
          AND (?5 IS NULL OR a.parked_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (a.parked_at, a.id) < (
                  iif(?6 IS NULL, '~', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?6)),
                  coalesce(?6, ''))
          AND (a.parked_at, a.id) >= (
                  iif(?11 IS NULL, '', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?11)),
                  coalesce(?11, ''))
        ORDER BY a.parked_at DESC, a.id DESC
        LIMIT ?7))
ORDER BY d.parked_at DESC, d.id DESC
