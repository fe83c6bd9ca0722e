-- Sent with its values each time, so that the planner sees which filters are set.
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version, payload,
       headers, destination, msg_key, lane, created_at, status, attempts, next_attempt_at,
       dispatched_at, job_id, causation_id, correlation_id, error_code, error_message
FROM relais_outbox
WHERE ($1::text IS NULL OR status = $1)
  AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR msg_key = $3)
  AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
  AND ($5::bigint IS NULL OR id < $5)
  AND ($7::text IS NULL OR destination = $7)
ORDER BY id DESC
LIMIT $6
