-- As in postgres.
UPDATE relais_bulk_job SET owner = NULL, lease_until = NULL
WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND finished_at IS NULL
