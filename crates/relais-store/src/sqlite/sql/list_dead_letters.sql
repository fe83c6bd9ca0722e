-- Differs from postgres: times are text that sorts; open ones are found by their partial index in a
-- part of their own, because SQLite uses such an index only where the statement itself names them.
SELECT d.id, d.origin, d.origin_id, d.message_id, d.source_system, d.destination, d.event_type,
       d.msg_key, d.payload, d.headers, d.failed_status, d.error_class, d.error_message, d.attempts,
       d.parked_by, d.parked_at, d.original_payload, d.edited_by, d.edited_at, d.resolution,
       d.resolved_by, d.resolved_at, d.reason
FROM relais_dead_letter AS d
WHERE d.id IN (
    SELECT id FROM (
        SELECT o.id FROM relais_dead_letter AS o
        WHERE ?1 = 'open' AND o.resolved_at IS NULL
          AND (?2 IS NULL OR o.event_type = ?2)
          AND (?3 IS NULL OR o.msg_key = ?3)
          AND (?4 IS NULL OR o.destination = ?4)
          AND (?5 IS NULL OR o.parked_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (?6 IS NULL OR (o.parked_at, o.id) < (
                  SELECT b.parked_at, b.id FROM relais_dead_letter AS b WHERE b.id = ?6))
        ORDER BY o.parked_at DESC, o.id DESC
        LIMIT ?7)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_dead_letter AS a
        WHERE (?1 IS NULL OR (?1 = 'resolved' AND a.resolved_at IS NOT NULL))
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.destination = ?4)
          AND (?5 IS NULL OR a.parked_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (?6 IS NULL OR (a.parked_at, a.id) < (
                  SELECT b.parked_at, b.id FROM relais_dead_letter AS b WHERE b.id = ?6))
        ORDER BY a.parked_at DESC, a.id DESC
        LIMIT ?7))
ORDER BY d.parked_at DESC, d.id DESC
