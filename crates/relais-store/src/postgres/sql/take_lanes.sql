-- Free lanes and lanes of lost workers ($3), lowest first. A lane that another worker settles in or takes
-- right now is left for the next heartbeat. All conditions are on the locked row itself, so they hold after
-- the lock.
-- A lane whose next row waits for an event type in $5 is left to the workers that know it.
WITH loose AS MATERIALIZED (
    SELECT lane, owner, unclean FROM relais_lane
    WHERE scope = $1 AND (owner IS NULL OR owner = ANY ($3::text[]))
      AND (wanted_type IS NULL OR wanted_type <> ALL ($5::text[]))
    ORDER BY lane
    LIMIT $4
    FOR UPDATE SKIP LOCKED)
UPDATE relais_lane AS l
SET owner = $2, epoch = l.epoch + 1, wanted_type = NULL
FROM loose
WHERE l.scope = $1 AND l.lane = loose.lane
RETURNING l.lane, l.epoch, loose.owner IS NOT NULL OR loose.unclean AS unclean
