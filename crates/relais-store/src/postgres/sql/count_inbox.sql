-- Open and failed rows are counted by their small indexes. PROCESSED is counted up to $1 rows; in
-- larger tables it is what the server's own estimate leaves, so that history costs nothing.
WITH part AS MATERIALIZED (
    SELECT status, count(*) AS amount FROM relais_inbox
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL GROUP BY status
    UNION ALL
    SELECT status, count(*) FROM relais_inbox
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL GROUP BY status
    UNION ALL
    SELECT status, count(*) FROM relais_inbox
    WHERE status IN ('FAILED', 'SERDE_ERROR') GROUP BY status),
done AS MATERIALIZED (
    SELECT count(*) AS amount
    FROM (SELECT FROM relais_inbox WHERE status = 'PROCESSED' LIMIT $1::bigint + 1) AS seen)
SELECT status, sum(amount)::bigint FROM part GROUP BY status
UNION ALL
SELECT 'PROCESSED',
       CASE WHEN done.amount <= $1 THEN done.amount
            ELSE greatest(done.amount, (SELECT reltuples::bigint FROM pg_class
                                        WHERE oid = 'relais_inbox'::regclass)
                                       - (SELECT coalesce(sum(amount), 0)::bigint FROM part)) END
FROM done
