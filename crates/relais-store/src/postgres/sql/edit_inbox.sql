UPDATE relais_inbox SET payload = $2 WHERE id = $1 AND status = 'FAILED'
