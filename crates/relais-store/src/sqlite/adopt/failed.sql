SELECT id FROM relais_outbox
WHERE id IN (SELECT value FROM json_each(?1)) AND +adopted_by = ?2 AND status = 'FAILED'
