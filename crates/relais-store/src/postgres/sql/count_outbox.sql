-- Open and failed rows are counted by their small indexes. DISPATCHED is counted in tables of up to $1 rows;
-- in larger ones it is what the server's own estimate leaves, so that history costs nothing.
WITH part AS MATERIALIZED (
    SELECT 'PENDING' AS status, count(*) AS amount FROM relais_outbox
    WHERE status = 'PENDING' AND next_attempt_at IS NULL
    UNION ALL
    SELECT 'PENDING', count(*) FROM relais_outbox
    WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'FAILED', count(*) FROM relais_outbox WHERE status = 'FAILED'),
estimate AS MATERIALIZED (
    SELECT greatest(reltuples::bigint, pg_stat_get_live_tuples(oid)) AS amount
    FROM pg_class WHERE oid = 'relais_outbox'::regclass),
seen AS MATERIALIZED (
    SELECT count(*) AS amount, count(*) FILTER (WHERE status = 'DISPATCHED') AS done
    FROM (SELECT status FROM relais_outbox
          LIMIT (SELECT CASE WHEN amount > $1 THEN 0 ELSE $1 + 1 END FROM estimate)) AS first)
SELECT status, sum(amount)::bigint FROM part GROUP BY status
UNION ALL
SELECT 'DISPATCHED',
       CASE WHEN estimate.amount <= $1 AND seen.amount <= $1 THEN seen.done
            ELSE greatest(seen.done,
                          estimate.amount - (SELECT coalesce(sum(amount), 0)::bigint FROM part)) END
FROM seen CROSS JOIN estimate
