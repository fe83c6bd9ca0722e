-- Everything of a worker that leaves.
WITH mine AS MATERIALIZED (
    SELECT lane FROM relais_lane WHERE scope = $1 AND owner = $2 ORDER BY lane FOR UPDATE)
UPDATE relais_lane AS l SET owner = NULL, lease_until = NULL, unclean = FALSE
FROM mine
WHERE l.scope = $1 AND l.lane = mine.lane
