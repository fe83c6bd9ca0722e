-- Rows $1 to $2 over $3 keys, spread so that neighbours rarely share one.
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, msg_key, payload,
                           status, attempts, dispatched_at)
SELECT 'Order', key, 'OrderChanged', $4, key, $5, $6, $7,
       CASE WHEN $6 = 'DISPATCHED' THEN clock_timestamp() END
FROM (SELECT 'order-' || lpad(((n * 2654435761 / 128) % $3::bigint)::text, 5, '0') AS key
      FROM generate_series($1::bigint, $2::bigint) AS n) AS keys
