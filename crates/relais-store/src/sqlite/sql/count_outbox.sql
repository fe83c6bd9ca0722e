-- Differs from postgres: DISPATCHED is what is left of the total, so that open and failed rows are counted by
-- their small indexes. The total is counted up to ?1 rows; of more it is the span of the ids, which have no
-- gaps but where cleanup went: it begins at the oldest finished row, looked for among the first ten thousand.
WITH total (rows) AS MATERIALIZED (
    SELECT iif((SELECT max(id) FROM relais_outbox) - (SELECT min(id) FROM relais_outbox) < ?1,
               (SELECT count(*) FROM relais_outbox),
               (SELECT max(id) FROM relais_outbox) + 1
               - coalesce((SELECT first.id FROM (SELECT id, status FROM relais_outbox
                                               ORDER BY id LIMIT 10000) AS first
                           WHERE first.status = 'DISPATCHED' LIMIT 1),
                          (SELECT min(id) FROM relais_outbox)))),
amount (total, pending, failed) AS (SELECT
    (SELECT coalesce(rows, 0) FROM total),
    (SELECT count(*) FROM relais_outbox WHERE status = 'PENDING' AND next_attempt_at IS NULL)
    + (SELECT count(*) FROM relais_outbox
       WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL),
    (SELECT count(*) FROM relais_outbox WHERE status = 'FAILED'))
SELECT 'PENDING', pending FROM amount
UNION ALL SELECT 'FAILED', failed FROM amount
UNION ALL SELECT 'DISPATCHED', max(0, total - pending - failed) FROM amount
