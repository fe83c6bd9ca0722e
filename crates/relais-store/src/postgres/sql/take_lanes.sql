-- Free and expired lanes, lowest first. A lane that another worker settles in or takes right now is left
-- for the next heartbeat. All conditions are on the locked row itself, so they hold after the lock.
-- A lease that ends later than any lease can (an hour, or three of ours) was granted by a clock that was
-- set back since, and counts as expired. The fence stops its owner, if it lives.
-- A lane whose next row waits for an event type in $5 is left to the workers that know it.
WITH loose AS MATERIALIZED (
    SELECT lane, owner, unclean FROM relais_lane
    WHERE scope = $1 AND owner IS DISTINCT FROM $2
      AND (owner IS NULL OR lease_until <= clock_timestamp()
           OR lease_until > clock_timestamp()
              + greatest(INTERVAL '1 hour', 3 * $3::bigint * INTERVAL '1 millisecond'))
      AND (wanted_type IS NULL OR wanted_type <> ALL ($5::text[]))
    ORDER BY lane
    LIMIT $4
    FOR UPDATE SKIP LOCKED)
UPDATE relais_lane AS l
SET owner = $2, epoch = l.epoch + 1, wanted_type = NULL,
    lease_until = clock_timestamp() + $3::bigint * INTERVAL '1 millisecond'
FROM loose
WHERE l.scope = $1 AND l.lane = loose.lane
RETURNING l.lane, l.epoch, loose.owner IS NOT NULL OR loose.unclean AS unclean
