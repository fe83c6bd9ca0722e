-- What is still ours stays ours, also after it ran out: nobody took it.
UPDATE relais_bulk_job
SET lease_until = clock_timestamp() + $4::bigint * INTERVAL '1 millisecond'
WHERE id = $1 AND owner = $2 AND epoch = $3 AND finished_at IS NULL
