-- As in postgres: without ?4 the lease is given back, and an expired lease that no worker took is renewed.
UPDATE relais_bulk_job
SET owner = iif(?4 IS NULL, NULL, owner),
    lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?4 / 1000.0) || ' seconds')
WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND finished_at IS NULL
RETURNING id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
          error_message
