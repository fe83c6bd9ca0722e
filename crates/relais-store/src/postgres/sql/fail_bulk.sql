-- As fail_outbox, for rows of a job.
WITH failed AS (
    UPDATE relais_outbox AS o
    SET status = 'FAILED', attempts = s.attempts, next_attempt_at = NULL,
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($2::bigint[], $3::integer[], $4::boolean[], $5::text[], $6::text[])
         AS s (id, attempts, park, error_code, error_message)
    WHERE o.id = s.id AND o.job_id IS NOT DISTINCT FROM $1 AND o.status = 'PENDING'
    RETURNING o.id, s.park, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key),
gone AS (
    DELETE FROM relais_waiting WHERE id = ANY (ARRAY(SELECT id FROM failed)))
SELECT id, park, msg_key FROM failed
