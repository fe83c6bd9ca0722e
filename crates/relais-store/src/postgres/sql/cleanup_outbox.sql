-- Reads the next $4 rows from $1 on, so that a pass with nothing to do does not read the table.
-- Attempts go with their row. Returns how many it removed, whether every row it read is younger
-- than the retention (then so are all behind them), how many it read, and the last id of those. A row
-- that was retried by an operator ends late: the time it was written decides whether to continue.
WITH seen AS MATERIALIZED (
    SELECT id, status, dispatched_at < clock_timestamp() - $2::bigint * INTERVAL '1 second' AS old,
           created_at >= clock_timestamp() - $2::bigint * INTERVAL '1 second' AS young
    FROM relais_outbox
    WHERE id > $1
    ORDER BY id
    LIMIT $4),
gone AS (
    DELETE FROM relais_outbox
    WHERE id IN (SELECT id FROM seen WHERE status = 'DISPATCHED' AND old ORDER BY id LIMIT $3)
      AND status = 'DISPATCHED'
    RETURNING id),
attempts AS (
    DELETE FROM relais_attempt
    WHERE origin = 'outbox' AND origin_id = ANY (ARRAY (SELECT id FROM gone)))
SELECT (SELECT count(*) FROM gone), (SELECT coalesce(bool_and(young), FALSE) FROM seen),
       (SELECT count(*) FROM seen), (SELECT max(id) FROM seen)
