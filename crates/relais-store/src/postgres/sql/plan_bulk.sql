-- Nothing comes back if the destination has an open job.
INSERT INTO relais_bulk_job (id, destination, row_count, owner, lease_until)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::bigint * INTERVAL '1 millisecond')
ON CONFLICT (destination) WHERE finished_at IS NULL DO NOTHING
RETURNING id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
          error_message
