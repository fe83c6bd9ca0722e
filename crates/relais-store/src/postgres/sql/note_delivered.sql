-- Rows that a target accepted after an operator had failed them: their settlement was refused, so this is
-- where their end is known.
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
SELECT 'outbox', o.id, o.attempts + 1, 'delivered', 'DELIVERED_LATE',
       'the destination accepted it after an operator had failed it', $2
FROM relais_outbox AS o
WHERE o.id = ANY ($1::bigint[]) AND o.status = 'FAILED' AND o.error_code = 'OPERATOR_FAILED'
