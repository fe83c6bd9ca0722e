-- Differs from postgres: the database's now is text. The oldest open row is the one with the lowest
-- id, because ids commit in order.
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       (SELECT coalesce(max(version), 0) FROM relais_schema),
       (SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL),
       (SELECT count(*) FROM relais_parked_key),
       (SELECT count(*) FROM relais_timer
        WHERE due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
       (SELECT received_at FROM relais_inbox WHERE id = (
            SELECT min(id) FROM (
                SELECT min(id) AS id FROM relais_inbox
                WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                UNION ALL
                SELECT min(id) FROM relais_inbox INDEXED BY relais_inbox_due
                WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL)))
