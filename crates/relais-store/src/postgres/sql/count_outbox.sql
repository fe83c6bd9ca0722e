-- Pending rows ($2) were counted by backlogs, failed ones are counted by their dead letters.
-- DISPATCHED is counted in tables of up to $1 rows; in larger ones it is what the server's own estimate leaves,
-- so that history costs nothing.
WITH part AS MATERIALIZED (
    SELECT 'PENDING' AS status, $2::bigint AS amount
    UNION ALL
    SELECT 'FAILED', count(*)
    FROM (SELECT DISTINCT origin_id FROM relais_dead_letter WHERE origin = 'outbox') AS d
    JOIN relais_outbox AS o ON o.id = d.origin_id
    WHERE o.status = 'FAILED'),
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
