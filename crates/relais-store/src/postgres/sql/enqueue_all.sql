-- A batch of messages in one statement, one array for each column; ids are drawn in this order.
-- A message whose destination has its id already is left out. Delays are milliseconds from the database's now.
INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type,
                           event_version, payload, headers, destination, msg_key, next_attempt_at,
                           causation_id, correlation_id)
SELECT message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
       headers, destination, msg_key, clock_timestamp() + delay_ms * INTERVAL '1 millisecond',
       causation_id, correlation_id
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::bigint[], $12::text[], $13::text[])
     WITH ORDINALITY
     AS m (message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
           headers, destination, msg_key, delay_ms, causation_id, correlation_id, place)
ORDER BY place
ON CONFLICT (message_id, destination) DO NOTHING
RETURNING id, message_id, destination
