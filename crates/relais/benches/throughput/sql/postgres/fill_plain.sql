-- The same rows for the raw limit.
INSERT INTO plain_relay (message_id, category, aggregate_type, aggregate_id, event_type,
                         event_version, payload, headers, destination, msg_key)
SELECT gen_random_uuid(), 'event', 'Order', key, 'OrderChanged', 1, $5, '{}', $4, key
FROM (SELECT 'order-' || lpad(((n * 2654435761 / 128) % $3::bigint)::text, 5, '0') AS key
      FROM generate_series($1::bigint, $2::bigint) AS n) AS keys
