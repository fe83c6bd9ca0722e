-- Differs from postgres: one row a statement.
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
SELECT 'outbox', id, attempts + 1, 'delivered', 'DELIVERED_LATE',
       'the destination accepted it after an operator had failed it', ?2
FROM relais_outbox
WHERE id = ?1 AND status = 'FAILED' AND error_code = 'OPERATOR_FAILED'
