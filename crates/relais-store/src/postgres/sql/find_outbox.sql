-- By its own id, or by its message id: the oldest, where several destinations have one of this id.
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
       headers, destination, msg_key, lane, created_at, status, attempts, next_attempt_at,
       dispatched_at, job_id, causation_id, correlation_id, error_code, error_message, lost_workers
FROM relais_outbox
WHERE id = $1::bigint OR message_id = $2::uuid
ORDER BY id = $1::bigint DESC NULLS LAST, id
LIMIT 1
