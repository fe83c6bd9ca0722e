-- Decoded again: the row is handled like any other, by its old id; the raw bytes stay. Locks the table
-- before the audit's id is drawn: see low_water_mark.rs.
UPDATE relais_inbox
SET status = 'RECEIVED', message_id = $2, msg_key = $3, aggregate_id = $4, event_type = $5,
    payload = $6, headers = $7, attempts = 0, next_attempt_at = NULL, error_stage = NULL,
    error_code = NULL, error_message = NULL
WHERE id = $1 AND status = 'SERDE_ERROR'
