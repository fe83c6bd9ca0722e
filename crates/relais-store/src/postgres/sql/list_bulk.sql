SELECT id, destination, remote_id, phase, row_count, owner, epoch, created_at, finished_at,
       error_message
FROM relais_bulk_job
WHERE $1::text IS NULL OR destination = $1
ORDER BY finished_at IS NOT NULL, created_at DESC, id
LIMIT $2
