-- Differs from postgres: DISPATCHED is what is left of the total, pending rows (?2) were counted by backlog.sql, and
-- failed ones are counted by their dead letters. The total is counted up to ?1 rows; of more it is the span of
-- the ids, which have no gaps but where cleanup went: it begins at the oldest finished row, looked for among the
-- first ten thousand.
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
    ?2,
    (SELECT count(*) FROM relais_dead_letter AS d INDEXED BY relais_dead_letter_failed
     WHERE d.origin = 'outbox' AND (d.resolved_at IS NULL OR d.resolution = 'discarded')))
SELECT 'PENDING', pending FROM amount
UNION ALL SELECT 'FAILED', failed FROM amount
UNION ALL SELECT 'DISPATCHED', max(0, total - pending - failed) FROM amount
