-- Differs from postgres: one row by its id, else by its message id; UUIDs are text.
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       o.payload, o.headers, o.destination, o.msg_key, o.lane, o.created_at, o.status, o.attempts,
       o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code,
       o.error_message, o.lost_workers
FROM relais_outbox AS o
WHERE o.id IN (SELECT ?1 UNION ALL SELECT m.id FROM relais_outbox AS m WHERE m.message_id = ?2)
ORDER BY o.id IS ?1 DESC, o.id
LIMIT 1
