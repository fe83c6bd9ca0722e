-- Owners of lanes of the scope whose lease has expired. The lock keeps them from renewing it until this
-- transaction ends; the condition is on the locked row itself, so it holds after the lock. One that renews
-- its lease right now is not lost.
-- A lease that ends later than any lease can (an hour, or three of ours) was granted by a clock that was
-- set back since, and counts as expired. The fence stops its owner, if it lives.
SELECT l.worker
FROM relais_lease AS l
WHERE l.worker <> $2
  AND l.worker = ANY (ARRAY(SELECT o.owner FROM relais_lane AS o
                            WHERE o.scope = $1 AND o.owner IS NOT NULL))
  AND (l.lease_until <= clock_timestamp()
       OR l.lease_until > clock_timestamp()
          + greatest(INTERVAL '1 hour', 3 * $3::bigint * INTERVAL '1 millisecond'))
ORDER BY l.worker
FOR SHARE SKIP LOCKED
