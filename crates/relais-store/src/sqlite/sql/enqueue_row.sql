-- As enqueue.sql without RETURNING, which costs SQLite a table of its own: the driver knows the id of the row.
INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type,
                           event_version, payload, headers, destination, msg_key, next_attempt_at,
                           causation_id, correlation_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
        CASE WHEN ?11 IS NOT NULL
             THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?11 / 1000.0) || ' seconds') END, ?12, ?13)
ON CONFLICT (message_id, destination) DO NOTHING
