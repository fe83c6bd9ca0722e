SELECT NOT EXISTS (SELECT FROM relais_outbox WHERE id = ANY ($1) AND status = 'PENDING')
