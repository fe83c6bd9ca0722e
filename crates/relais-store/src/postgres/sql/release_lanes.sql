-- Given back: the next owner takes them at once and need not be cautious.
WITH mine AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR UPDATE)
UPDATE relais_lane AS l SET owner = NULL, unclean = FALSE
FROM mine
WHERE l.scope = $1 AND l.lane = mine.lane
