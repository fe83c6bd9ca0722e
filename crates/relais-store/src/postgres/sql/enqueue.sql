-- One message. If its destination has one with its id already, no row comes back. The delay is
-- in milliseconds from the database's now, or NULL.
INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type,
                           event_version, payload, headers, destination, msg_key, next_attempt_at,
                           causation_id, correlation_id)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::text,
        $10::text, clock_timestamp() + $11::bigint * INTERVAL '1 millisecond', $12::text, $13::text)
ON CONFLICT (message_id, destination) DO NOTHING
RETURNING id, message_id
