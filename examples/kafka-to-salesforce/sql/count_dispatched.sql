SELECT count(*) FROM relais_outbox WHERE status = 'DISPATCHED'
