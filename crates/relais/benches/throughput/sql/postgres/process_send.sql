INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type, payload,
                           headers, destination, msg_key, causation_id, correlation_id)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::text[], $9::text[], $10::text[], $11::text[])
