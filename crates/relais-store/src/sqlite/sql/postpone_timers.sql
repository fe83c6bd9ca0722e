-- Differs from postgres: a statement of its own, before those that are due are taken.
-- No reply can come to a command that has not been sent: its time begins when it has.
UPDATE relais_timer
SET due_at = (SELECT strftime('%Y-%m-%dT%H:%M:%fZ',
                              CASE WHEN o.status = 'PENDING' THEN 'now' ELSE o.dispatched_at END,
                              (relais_timer.after_ms / 1000.0) || ' seconds')
              FROM relais_outbox AS o
              WHERE o.message_id = relais_timer.command_id)
WHERE process_id IN (
    SELECT t.process_id
    FROM relais_timer AS t
    JOIN relais_outbox AS o ON o.message_id = t.command_id
    WHERE t.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      AND (?2 IS NULL OR (SELECT p.process_type FROM relais_process AS p
                          WHERE p.process_id = t.process_id) IN (SELECT value FROM json_each(?2)))
      AND (o.status = 'PENDING'
           OR (o.status = 'DISPATCHED'
               AND strftime('%Y-%m-%dT%H:%M:%fZ', o.dispatched_at,
                            (t.after_ms / 1000.0) || ' seconds')
                   > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
    ORDER BY t.due_at
    LIMIT ?1)
