-- As in postgres: the open job, if no worker holds it.
UPDATE relais_bulk_job
SET owner = ?2, epoch = epoch + 1,
    lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds')
WHERE destination = ?1 AND finished_at IS NULL
  AND (owner IS NULL OR coalesce(lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
       OR lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?3 / 1000.0) || ' seconds'))
RETURNING id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
          error_message
