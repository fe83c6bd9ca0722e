-- Every row that is left goes again as it was. Locks the table before announce_bulk: see low_water_mark.rs.
UPDATE relais_outbox SET job_id = NULL, next_attempt_at = NULL
WHERE job_id = $1 AND status = 'PENDING'
