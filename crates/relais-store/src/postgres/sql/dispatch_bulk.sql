-- As mark_dispatched, for rows of a job.
WITH settled AS (
    UPDATE relais_outbox AS o
    SET msg_key = coalesce(o.msg_key, o.aggregate_id COLLATE "C"),
        status = 'DISPATCHED', attempts = o.attempts + 1, next_attempt_at = NULL,
        dispatched_at = clock_timestamp(), error_code = NULL, error_message = NULL
    FROM unnest($2::bigint[]) AS s (id)
    WHERE o.id = s.id AND o.job_id IS NOT DISTINCT FROM $1 AND o.status = 'PENDING'
    RETURNING o.id),
gone AS (
    DELETE FROM relais_waiting WHERE id = ANY (ARRAY(SELECT id FROM settled)) RETURNING msg_key)
SELECT (SELECT count(*) FROM settled), ARRAY(SELECT DISTINCT msg_key FROM gone)
