-- Lanes that were handed over for an event type that this worker knows: also beyond its share, because
-- the lane's next row waits for it.
WITH wanted AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner IS NULL AND wanted_type = ANY ($3::text[])
    ORDER BY lane
    FOR UPDATE SKIP LOCKED)
UPDATE relais_lane AS l
SET owner = $2, epoch = l.epoch + 1, wanted_type = NULL
FROM wanted
WHERE l.scope = $1 AND l.lane = wanted.lane
RETURNING l.lane, l.epoch, l.unclean
