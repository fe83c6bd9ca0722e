-- The row goes again, first in its key because it has the lowest id. Locks the table before the
-- audit's id is drawn: see low_water_mark.rs.
UPDATE relais_inbox
SET status = 'RECEIVED', attempts = 0, lost_workers = 0, next_attempt_at = NULL, error_stage = NULL,
    error_code = NULL, error_message = NULL, unknown_since = NULL
WHERE id = $1 AND status = 'FAILED'
