-- Done with its last row. Looks from the end, because rows are settled from the start.
UPDATE relais_bulk_job
SET phase = 'RECONCILED', finished_at = clock_timestamp(), owner = NULL, lease_until = NULL
WHERE id = $1 AND finished_at IS NULL
  AND (SELECT w.id FROM relais_waiting AS w
       WHERE w.job_id = $2
       ORDER BY w.id + 0 DESC
       LIMIT 1) IS NULL
