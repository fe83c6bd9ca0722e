-- Versions of aggregates that were not seen for long. Reads the next $5 from ($1, $2) on, by the primary key: an index
-- on the time would cost each message. Returns how many it removed, how many it read, and the last of those.
WITH seen AS MATERIALIZED (
    SELECT aggregate_type, aggregate_id, seen_at < now() - $3::bigint * INTERVAL '1 second' AS old
    FROM relais_version
    WHERE (aggregate_type, aggregate_id) > ($1, $2)
    ORDER BY aggregate_type, aggregate_id
    LIMIT $5),
gone AS (
    DELETE FROM relais_version AS v
    WHERE (v.aggregate_type, v.aggregate_id) IN (
            SELECT s.aggregate_type, s.aggregate_id FROM seen AS s WHERE s.old LIMIT $4)
      AND v.seen_at < now() - $3::bigint * INTERVAL '1 second'
    RETURNING v.aggregate_id)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM seen), last.aggregate_type, last.aggregate_id
FROM (VALUES (1)) AS one (row)
LEFT JOIN (SELECT aggregate_type, aggregate_id FROM seen
           ORDER BY aggregate_type DESC, aggregate_id DESC
           LIMIT 1) AS last ON TRUE
