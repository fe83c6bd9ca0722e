-- Everything of a worker that leaves the scope.
WITH mine AS MATERIALIZED (
    SELECT lane FROM relais_lane WHERE scope = $1 AND owner = $2 ORDER BY lane FOR UPDATE),
freed AS (
    UPDATE relais_lane AS l SET owner = NULL, unclean = FALSE
    FROM mine
    WHERE l.scope = $1 AND l.lane = mine.lane)
DELETE FROM relais_worker WHERE scope = $1 AND worker = $2
