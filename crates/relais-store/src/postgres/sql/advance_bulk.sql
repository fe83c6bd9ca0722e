-- $8: the new phase is the last one.
UPDATE relais_bulk_job
SET phase = $5, remote_id = coalesce($6, remote_id), error_message = coalesce($7, error_message),
    finished_at = CASE WHEN $8 THEN clock_timestamp() END,
    owner = CASE WHEN NOT $8 THEN owner END, lease_until = CASE WHEN NOT $8 THEN lease_until END
WHERE id = $1 AND owner = $2 AND epoch = $3 AND phase = $4 AND finished_at IS NULL
