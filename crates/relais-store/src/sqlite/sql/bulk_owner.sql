-- Differs from postgres, where take_bulk says it: whether the open job has an owner. One that released it is
-- no owner any more.
SELECT owner FROM relais_bulk_job
WHERE destination = ?1 AND finished_at IS NULL AND owner IS NOT NULL
