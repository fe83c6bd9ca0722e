-- Open and failed rows are counted by their small indexes. DISPATCHED is counted up to $1 rows; in
-- larger tables it is what the server's own estimate leaves, so that history costs nothing.
WITH part AS MATERIALIZED (
    SELECT 'PENDING' AS status, count(*) AS amount FROM relais_outbox
    WHERE status = 'PENDING' AND next_attempt_at IS NULL
    UNION ALL
    SELECT 'PENDING', count(*) FROM relais_outbox
    WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
    UNION ALL
    SELECT 'FAILED', count(*) FROM relais_outbox WHERE status = 'FAILED'),
done AS MATERIALIZED (
    SELECT count(*) AS amount
    FROM (SELECT FROM relais_outbox WHERE status = 'DISPATCHED' LIMIT $1::bigint + 1) AS seen)
SELECT status, sum(amount)::bigint FROM part GROUP BY status
UNION ALL
SELECT 'DISPATCHED',
       CASE WHEN done.amount <= $1 THEN done.amount
            ELSE greatest(done.amount, (SELECT reltuples::bigint FROM pg_class
                                        WHERE oid = 'relais_outbox'::regclass)
                                       - (SELECT coalesce(sum(amount), 0)::bigint FROM part)) END
FROM done
