INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
VALUES ($1, 'Order', $2, 'OrderChanged', $3, 'NEW', clock_timestamp() AT TIME ZONE 'UTC')
