-- Differs from postgres: DISPATCHED is what is left of the total, so that open and failed rows are
-- counted by their small indexes and history only once, by the smallest index there is.
WITH amount (total, pending, failed) AS (SELECT
    (SELECT count(*) FROM relais_outbox),
    (SELECT count(*) FROM relais_outbox WHERE status = 'PENDING' AND next_attempt_at IS NULL)
    + (SELECT count(*) FROM relais_outbox
       WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL),
    (SELECT count(*) FROM relais_outbox WHERE status = 'FAILED'))
SELECT 'PENDING', pending FROM amount
UNION ALL SELECT 'FAILED', failed FROM amount
UNION ALL SELECT 'DISPATCHED', total - pending - failed FROM amount
