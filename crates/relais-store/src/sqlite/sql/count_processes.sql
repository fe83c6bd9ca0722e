-- Differs from postgres: SUCCEEDED is what is left of the total, so that history is counted only once,
-- by the smallest index there is.
WITH amount (status, amount) AS MATERIALIZED (
    SELECT status, count(*) FROM relais_process INDEXED BY relais_process_state
    WHERE status <> 'SUCCEEDED'
    GROUP BY status)
SELECT status, amount FROM amount
UNION ALL
SELECT 'SUCCEEDED',
       (SELECT count(*) FROM relais_process) - (SELECT coalesce(sum(amount), 0) FROM amount)
