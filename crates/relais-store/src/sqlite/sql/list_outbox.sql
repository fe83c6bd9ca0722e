-- Differs from postgres: failed rows are found by their partial index in a part of their own, because
-- SQLite uses such an index only where the statement itself names the state.
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       o.payload, o.headers, o.destination, o.msg_key, o.lane, o.created_at, o.status, o.attempts,
       o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code,
       o.error_message
FROM relais_outbox AS o
WHERE o.id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_outbox AS t
        WHERE ?1 = 'FAILED' AND t.status = 'FAILED'
          AND (?2 IS NULL OR t.event_type = ?2)
          AND (?3 IS NULL OR t.msg_key = ?3)
          AND (?4 IS NULL OR t.destination = ?4)
          AND (?5 IS NULL OR t.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (?6 IS NULL OR t.id < ?6)
        ORDER BY t.id DESC
        LIMIT ?7)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_outbox AS a
        WHERE ?1 IS NOT 'FAILED' AND (?1 IS NULL OR a.status = ?1)
          AND (?2 IS NULL OR a.event_type = ?2)
          AND (?3 IS NULL OR a.msg_key = ?3)
          AND (?4 IS NULL OR a.destination = ?4)
          AND (?5 IS NULL OR a.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
          AND (?6 IS NULL OR a.id < ?6)
        ORDER BY a.id DESC
        LIMIT ?7))
ORDER BY o.id DESC
