-- Open and failed rows are counted by their small indexes. PROCESSED is counted in tables of up to $1 rows;
-- in larger ones it is what the server's own estimate leaves, so that history costs nothing.
WITH part AS MATERIALIZED (
    SELECT status, count(*) AS amount FROM relais_inbox
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL GROUP BY status
    UNION ALL
    SELECT status, count(*) FROM relais_inbox
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL GROUP BY status
    UNION ALL
    SELECT status, count(*) FROM relais_inbox
    WHERE status IN ('FAILED', 'SERDE_ERROR') GROUP BY status),
estimate AS MATERIALIZED (
    SELECT greatest(reltuples::bigint, pg_stat_get_live_tuples(oid)) AS amount
    FROM pg_class WHERE oid = 'relais_inbox'::regclass),
seen AS MATERIALIZED (
    SELECT count(*) AS amount, count(*) FILTER (WHERE status = 'PROCESSED') AS done
    FROM (SELECT status FROM relais_inbox
          LIMIT (SELECT CASE WHEN amount > $1 THEN 0 ELSE $1 + 1 END FROM estimate)) AS first)
SELECT status, sum(amount)::bigint FROM part GROUP BY status
UNION ALL
SELECT 'PROCESSED',
       CASE WHEN estimate.amount <= $1 AND seen.amount <= $1 THEN seen.done
            ELSE greatest(seen.done,
                          estimate.amount - (SELECT coalesce(sum(amount), 0)::bigint FROM part)) END
FROM seen CROSS JOIN estimate
