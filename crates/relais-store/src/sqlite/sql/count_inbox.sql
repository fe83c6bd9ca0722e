-- Differs from postgres: PROCESSED is what is left of the total, so that open and failed rows are counted by
-- their small indexes. The total is counted up to ?1 rows; of more it is the span of the ids, which have no
-- gaps but where cleanup went: it begins at the oldest finished row, looked for among the first ten thousand.
WITH total (rows) AS MATERIALIZED (
    SELECT iif((SELECT max(id) FROM relais_inbox) - (SELECT min(id) FROM relais_inbox) < ?1,
               (SELECT count(*) FROM relais_inbox),
               (SELECT max(id) FROM relais_inbox) + 1
               - coalesce((SELECT first.id FROM (SELECT id, status FROM relais_inbox
                                               ORDER BY id LIMIT 10000) AS first
                           WHERE first.status = 'PROCESSED' LIMIT 1),
                          (SELECT min(id) FROM relais_inbox)))),
amount (total, open, retry, failed, serde_error) AS (SELECT
    (SELECT coalesce(rows, 0) FROM total),
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
UNION ALL SELECT 'PROCESSED', max(0, total - open - failed - serde_error) FROM amount
