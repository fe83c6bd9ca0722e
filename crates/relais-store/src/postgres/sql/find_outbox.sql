-- By its own id, or by its message id: the oldest, where several destinations have one of this id.
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       o.payload, o.headers, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key,
       (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63)::smallint AS lane,
       o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id,
       o.correlation_id, o.error_code, o.error_message, o.lost_workers
FROM relais_outbox AS o
WHERE id = $1::bigint OR message_id = $2::uuid
ORDER BY id = $1::bigint DESC NULLS LAST, id
LIMIT 1
