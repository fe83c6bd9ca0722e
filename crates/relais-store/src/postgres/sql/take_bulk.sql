-- The open job, if nobody holds it; as in take_lanes, a lease that ends too late is none. The conditions are on the row itself, so they hold after the lock.
UPDATE relais_bulk_job
SET owner = $2, epoch = epoch + 1,
    lease_until = clock_timestamp() + $3::bigint * INTERVAL '1 millisecond'
WHERE destination = $1 AND finished_at IS NULL
  AND (owner IS NULL OR coalesce(lease_until, '-infinity') <= clock_timestamp()
       OR lease_until > clock_timestamp()
          + greatest(INTERVAL '1 hour', 3 * $3::bigint * INTERVAL '1 millisecond'))
RETURNING id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
          error_message
