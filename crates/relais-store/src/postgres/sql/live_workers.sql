-- The workers that share the lanes of the scope now, this one included. As in lost_workers, a time too far
-- ahead is of a clock that was set back.
SELECT count(*)
FROM relais_worker AS w
JOIN relais_lease AS l ON l.worker = w.worker
WHERE w.scope = $1 AND l.lease_until > clock_timestamp()
  AND l.lease_until <= clock_timestamp()
      + greatest(INTERVAL '1 hour', 3 * $2::bigint * INTERVAL '1 millisecond')
