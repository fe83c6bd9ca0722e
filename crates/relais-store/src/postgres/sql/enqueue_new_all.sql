-- A batch of messages whose ids were generated for them: as enqueue_all.sql, without the reservation that
-- ON CONFLICT makes for each row.
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
RETURNING id, message_id, destination
