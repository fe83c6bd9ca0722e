-- Done with its last row. Looks from the end, because rows are settled from the start.
UPDATE relais_bulk_job
SET phase = 'RECONCILED', finished_at = clock_timestamp(), owner = NULL, lease_until = NULL
WHERE id = $1 AND finished_at IS NULL
  AND (SELECT o.id FROM relais_outbox AS o
       WHERE o.job_id = $2 AND o.status = 'PENDING'
       ORDER BY o.id + 0 DESC
       LIMIT 1) IS NULL
