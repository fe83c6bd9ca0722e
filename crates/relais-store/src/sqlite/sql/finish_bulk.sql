-- As in postgres: done with its last row.
UPDATE relais_bulk_job
SET phase = 'RECONCILED', finished_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), owner = NULL,
    lease_until = NULL
WHERE id = ?1 AND finished_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.job_id = ?1)
