-- One message whose id was generated for it: as enqueue.sql, without the reservation that ON CONFLICT makes
-- for each row. The delay is in milliseconds from the database's now, or NULL.
INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type,
                           event_version, payload, headers, destination, msg_key, next_attempt_at,
                           causation_id, correlation_id)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::text,
        $10::text, clock_timestamp() + $11::bigint * INTERVAL '1 millisecond', $12::text, $13::text)
RETURNING id
