-- Rows $1 to $2 over $3 keys and $8 destinations, spread so that neighbours rarely share one.
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, msg_key, payload,
                           status, attempts, dispatched_at)
SELECT 'Order', key, 'OrderChanged',
       CASE WHEN $8::bigint = 1 THEN $4::text ELSE $4::text || '-' || n % $8::bigint END, key, $5::text, $6, $7,
       CASE WHEN $6 = 'DISPATCHED' THEN clock_timestamp() END
FROM (SELECT n, 'order-' || lpad(((n * 2654435761 / 128) % $3::bigint)::text, 5, '0') AS key
      FROM generate_series($1::bigint, $2::bigint) AS n) AS keys
