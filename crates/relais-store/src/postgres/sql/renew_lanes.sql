-- Lanes that no other worker took stay with their owner, also after the lease has expired. Locked in order, as every
-- settlement locks, so that the two cannot deadlock.
WITH mine AS MATERIALIZED (
    SELECT lane FROM relais_lane WHERE scope = $1 AND owner = $2 ORDER BY lane FOR UPDATE)
UPDATE relais_lane AS l
SET lease_until = clock_timestamp() + $3::bigint * INTERVAL '1 millisecond'
FROM mine
WHERE l.scope = $1 AND l.lane = mine.lane
RETURNING l.lane, l.epoch
