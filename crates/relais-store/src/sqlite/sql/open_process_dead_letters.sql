-- Differs from postgres: one row a statement; the id is made by the caller. An open one shows the
-- latest failure.
INSERT INTO relais_dead_letter (id, origin, message_id, event_type, msg_key, payload, failed_status,
                                error_class, error_message, attempts, parked_by)
VALUES (?1, 'process', ?2, ?3, coalesce(?4, ?2), ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (message_id) WHERE origin = 'process' AND resolved_at IS NULL DO UPDATE
SET payload = excluded.payload, failed_status = excluded.failed_status,
    error_class = excluded.error_class, error_message = excluded.error_message,
    attempts = excluded.attempts, parked_by = excluded.parked_by, parked_at = excluded.parked_at
