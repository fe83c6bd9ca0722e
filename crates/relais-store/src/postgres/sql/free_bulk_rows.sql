-- Not tried: goes again as it was.
WITH freed AS (
    UPDATE relais_waiting AS w SET job_id = NULL, due_at = clock_timestamp()
    WHERE w.id = ANY ($2::bigint[]) AND w.job_id IS NOT DISTINCT FROM $1
    RETURNING w.id)
UPDATE relais_outbox AS o SET job_id = NULL, next_attempt_at = NULL, lost_workers = 0
WHERE o.id = ANY (ARRAY(SELECT id FROM freed)) AND o.status = 'PENDING'
