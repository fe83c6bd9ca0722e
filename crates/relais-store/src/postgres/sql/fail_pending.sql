-- An operator gives up a row that is still pending, in whatever hands it is; bury_outbox writes the dead
-- letter. A settlement that comes later finds it not pending and is refused. Locks the table before the
-- audit's id is drawn: see low_water_mark.rs.
UPDATE relais_outbox
SET status = 'FAILED', next_attempt_at = NULL, error_code = $2, error_message = $3
WHERE id = $1 AND status = 'PENDING'
RETURNING id, $4::boolean AS park, job_id
