-- Without $4 the lease is given back. A job that no other worker has taken stays with its owner, also after
-- the lease has expired.
UPDATE relais_bulk_job
SET owner = CASE WHEN $4::bigint IS NULL THEN NULL ELSE owner END,
    lease_until = clock_timestamp() + $4::bigint * INTERVAL '1 millisecond'
WHERE id = $1 AND owner = $2 AND epoch = $3 AND finished_at IS NULL
RETURNING id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
          error_message
