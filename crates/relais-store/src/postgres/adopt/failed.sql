SELECT id FROM relais_outbox WHERE id = ANY ($1::bigint[]) AND adopted_by = $2 AND status = 'FAILED'
