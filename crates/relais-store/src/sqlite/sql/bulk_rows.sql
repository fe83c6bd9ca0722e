-- Differs from postgres: the payloads are read only after the cut, because a window function would copy
-- all of them.
WITH open AS (
    SELECT o.id, octet_length(o.payload) AS bytes
    FROM relais_waiting AS w INDEXED BY relais_waiting_job
    CROSS JOIN relais_outbox AS o ON o.id = w.id AND o.status = 'PENDING'
    WHERE w.job_id = ?1 AND w.id > ?2
    ORDER BY w.id
    LIMIT ?3),
page AS (
    SELECT id, sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before FROM open)
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version,
       CASE WHEN ?4 IS NOT NULL THEN payload ELSE '' END,
       headers, destination, msg_key, lane, created_at, status, attempts, next_attempt_at,
       dispatched_at, job_id, causation_id, correlation_id, error_code, error_message, lost_workers
FROM relais_outbox
WHERE id IN (SELECT id FROM page WHERE ?4 IS NULL OR bytes_before < ?4)
ORDER BY id
