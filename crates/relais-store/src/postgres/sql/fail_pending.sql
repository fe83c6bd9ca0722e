-- An operator gives up a row that is still pending, in whatever hands it is; bury_outbox writes the dead
-- letter. A settlement that comes later finds it not pending and is refused.
WITH failed AS (
    UPDATE relais_outbox AS o
    SET status = 'FAILED', next_attempt_at = NULL, error_code = $2, error_message = $3
    WHERE o.id = $1 AND o.status = 'PENDING'
    RETURNING o.id, o.job_id, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key),
gone AS (
    DELETE FROM relais_waiting WHERE id = ANY (ARRAY(SELECT id FROM failed)))
SELECT id, $4::boolean AS park, msg_key, job_id, destination FROM failed
