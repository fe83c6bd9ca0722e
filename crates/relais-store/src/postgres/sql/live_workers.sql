-- The workers that share the lanes of the scope now, this one included. As in take_lanes, a time too far
-- ahead is of a clock that was set back.
SELECT count(*) FROM relais_worker
WHERE scope = $1 AND seen_until > clock_timestamp()
  AND seen_until <= clock_timestamp()
      + greatest(INTERVAL '1 hour', 3 * $2::bigint * INTERVAL '1 millisecond')
