UPDATE relais_outbox SET payload = $2 WHERE id = $1 AND status = 'FAILED'
