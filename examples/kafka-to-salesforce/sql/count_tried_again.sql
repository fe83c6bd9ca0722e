SELECT count(*) FROM relais_outbox WHERE status = 'DISPATCHED' AND attempts > 1
