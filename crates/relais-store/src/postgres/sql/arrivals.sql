-- Visible rows with ids in the ranges, at most $3 of each. The sub-select with its own order and limit stays
-- a walk along the primary key, whatever the statistics say.
SELECT o.id, CASE WHEN o.status = 'PENDING' THEN o.destination END
FROM unnest($1::bigint[], $2::bigint[]) AS r (first, last)
CROSS JOIN LATERAL (
    SELECT a.id, a.status, a.destination
    FROM relais_outbox AS a
    WHERE a.id BETWEEN r.first AND r.last
    ORDER BY a.id
    LIMIT $3) AS o
