-- The fence: who takes the job over comes before or after, never between.
SELECT destination FROM relais_bulk_job
WHERE id = $1 AND owner = $2 AND epoch = $3 AND finished_at IS NULL
FOR UPDATE
