INSERT INTO relais_outbox (
    message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
    headers, destination, msg_key, next_attempt_at, causation_id, correlation_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::timestamptz, $12, $13)
