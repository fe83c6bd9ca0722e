-- Differs from postgres: the destinations, each found by one step along the index, with their positions; backlog.sql
-- counts the rows of each.
WITH RECURSIVE destination (name) AS (
    SELECT min(o.destination) FROM relais_outbox AS o
    UNION ALL
    SELECT (SELECT min(o.destination) FROM relais_outbox AS o WHERE o.destination > destination.name)
    FROM destination
    WHERE destination.name IS NOT NULL)
SELECT name, coalesce((SELECT position FROM relais_outbox_position AS p WHERE p.destination = name), 0)
FROM destination
WHERE name IS NOT NULL
