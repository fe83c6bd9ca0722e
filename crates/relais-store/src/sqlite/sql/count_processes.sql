-- Differs from postgres: SUCCEEDED is what is left of the total, so that all others are counted by their
-- index. The total is counted up to ?1 rows; of more it is the span of the rowids, which have no
-- gaps but where cleanup went: it begins at the oldest finished row, looked for among the first ten thousand.
WITH total (rows) AS MATERIALIZED (
    SELECT iif((SELECT max(rowid) FROM relais_process) - (SELECT min(rowid) FROM relais_process) < ?1,
               (SELECT count(*) FROM relais_process),
               (SELECT max(rowid) FROM relais_process) + 1
               - coalesce((SELECT first.id FROM (SELECT rowid AS id, status FROM relais_process
                                               ORDER BY rowid LIMIT 10000) AS first
                           WHERE first.status = 'SUCCEEDED' LIMIT 1),
                          (SELECT min(rowid) FROM relais_process)))),
amount (status, amount) AS MATERIALIZED (
    SELECT status, count(*) FROM relais_process INDEXED BY relais_process_state
    WHERE status <> 'SUCCEEDED'
    GROUP BY status)
SELECT status, amount FROM amount
UNION ALL
SELECT 'SUCCEEDED',
       max(0, (SELECT coalesce(rows, 0) FROM total) - (SELECT coalesce(sum(amount), 0) FROM amount))
