-- As mark_dispatched, for rows of a job.
UPDATE relais_outbox AS o
SET status = 'DISPATCHED', attempts = o.attempts + 1, next_attempt_at = NULL,
    dispatched_at = clock_timestamp(), error_code = NULL, error_message = NULL
FROM unnest($2::bigint[]) AS s (id)
WHERE o.id = s.id AND o.job_id IS NOT DISTINCT FROM $1 AND o.status = 'PENDING'
