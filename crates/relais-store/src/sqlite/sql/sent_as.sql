-- As in postgres.
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
       headers, destination, msg_key, lane, created_at, status, attempts, next_attempt_at,
       dispatched_at, job_id, causation_id, correlation_id, error_code, error_message, lost_workers
FROM relais_outbox
WHERE message_id = ?1
ORDER BY id
LIMIT ?2
