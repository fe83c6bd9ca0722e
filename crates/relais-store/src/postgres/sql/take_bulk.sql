-- The open job if no worker holds it, and whether its last worker did not release it. As in take_lanes, a lease
-- that ends too late has expired. The conditions are on the locked row, so they hold after the lock.
WITH open AS MATERIALIZED (
    SELECT id, owner IS NOT NULL AS after_loss
    FROM relais_bulk_job
    WHERE destination = $1 AND finished_at IS NULL
      AND (owner IS NULL OR coalesce(lease_until, '-infinity') <= clock_timestamp()
           OR lease_until > clock_timestamp()
              + greatest(INTERVAL '1 hour', 3 * $3::bigint * INTERVAL '1 millisecond'))
    FOR UPDATE)
UPDATE relais_bulk_job AS j
SET owner = $2, epoch = j.epoch + 1,
    lease_until = clock_timestamp() + $3::bigint * INTERVAL '1 millisecond'
FROM open
WHERE j.id = open.id
RETURNING j.id, j.destination, j.remote_id, j.phase, j.row_count, j.owner, j.epoch, j.created_at,
          j.finished_at, j.error_message, open.after_loss
