-- Ended processes, with their logs and timers, that need no operator. Reads the next $5 of those
-- that are old enough, from ($1, $2) on: no index on what a step changes is needed. Gives back how many
-- it removed, how many it read, and the last of those.
WITH seen AS MATERIALIZED (
    SELECT process_id, created_at,
           status IN ('SUCCEEDED', 'FAILED', 'COMPENSATED')
           AND updated_at < now() - $3::bigint * INTERVAL '1 second' AS ended
    FROM relais_process
    WHERE (created_at, process_id) > ($1, $2) AND created_at < now() - $3::bigint * INTERVAL '1 second'
    ORDER BY created_at, process_id
    LIMIT $5),
gone AS (
    DELETE FROM relais_process AS p
    WHERE p.process_id IN (
            SELECT s.process_id FROM seen AS s
            WHERE s.ended
              AND (SELECT d.id FROM relais_dead_letter AS d
                   WHERE d.message_id = s.process_id::text
                     AND d.origin = 'process' AND d.resolved_at IS NULL
                   LIMIT 1) IS NULL
            LIMIT $4)
      AND p.status IN ('SUCCEEDED', 'FAILED', 'COMPENSATED')
      AND p.updated_at < now() - $3::bigint * INTERVAL '1 second'
    RETURNING p.process_id),
log AS (
    DELETE FROM relais_process_log WHERE process_id = ANY (ARRAY (SELECT process_id FROM gone))),
timer AS (
    DELETE FROM relais_timer WHERE process_id = ANY (ARRAY (SELECT process_id FROM gone)))
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM seen), last.created_at, last.process_id
FROM (VALUES (1)) AS one (row)
LEFT JOIN (SELECT created_at, process_id FROM seen
           ORDER BY created_at DESC, process_id DESC
           LIMIT 1) AS last ON TRUE
