-- Differs from postgres: PROCESSED is what is left of the total, so that open and failed rows are
-- counted by their small indexes and history only once, by the smallest index there is.
WITH amount (total, open, retry, failed, serde_error) AS (SELECT
    (SELECT count(*) FROM relais_inbox),
    (SELECT count(*) FROM relais_inbox
     WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL)
    + (SELECT count(*) FROM relais_inbox
       WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL),
    (SELECT count(*) FROM relais_inbox
     WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND status = 'RETRY'),
    (SELECT count(*) FROM relais_inbox
     WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND status = 'FAILED'),
    (SELECT count(*) FROM relais_inbox
     WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND status = 'SERDE_ERROR'))
SELECT 'RECEIVED', open - retry FROM amount
UNION ALL SELECT 'RETRY', retry FROM amount
UNION ALL SELECT 'FAILED', failed FROM amount
UNION ALL SELECT 'SERDE_ERROR', serde_error FROM amount
UNION ALL SELECT 'PROCESSED', total - open - failed - serde_error FROM amount
