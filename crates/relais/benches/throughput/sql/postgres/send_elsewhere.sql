INSERT INTO relais_outbox (destination, aggregate_id, event_type, payload, aggregate_type)
VALUES ($1, $2, $3, $4::text, 'Order')
RETURNING message_id
