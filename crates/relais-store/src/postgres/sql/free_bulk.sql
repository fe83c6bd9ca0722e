-- Every row that is left goes again as it was.
WITH freed AS (
    UPDATE relais_waiting SET job_id = NULL, due_at = clock_timestamp() WHERE job_id = $1 RETURNING id)
UPDATE relais_outbox AS o SET job_id = NULL, next_attempt_at = NULL
WHERE o.id = ANY (ARRAY(SELECT id FROM freed)) AND o.status = 'PENDING'
