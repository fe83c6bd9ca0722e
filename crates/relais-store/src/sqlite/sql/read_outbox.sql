-- One row of a fetch, with payload and headers if ?2.
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       CASE WHEN ?2 THEN o.payload ELSE '' END, CASE WHEN ?2 THEN o.headers END,
       o.destination, o.msg_key, ?3, o.created_at, o.status, o.attempts,
       o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code,
       o.error_message, o.lost_workers
FROM relais_outbox AS o
WHERE o.id = ?1
