UPDATE relais_outbox SET payload = $2::text WHERE id = $1 AND status = 'FAILED'
