-- Differs from postgres: only the walk over fresh rows, in order of their ids; the caller stops it. Lanes and keys
-- are compared by the caller. Waiting rows are looked up only if the destination has any (?3). The payload is NULL
-- if it has more than ?4 bytes; `octet_length` does not read it. The last column is 1 for a delayed row, 2 for one
-- that holds its key.
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       CASE WHEN octet_length(o.payload) <= ?4 THEN o.payload END, o.headers, o.destination, o.msg_key, NULL,
       o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id,
       o.correlation_id, o.error_code, o.error_message, o.lost_workers, octet_length(o.payload),
       CASE WHEN o.next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
            THEN 1 + (o.attempts > 0 OR o.error_code IS NOT NULL) ELSE 0 END
FROM relais_outbox AS o INDEXED BY relais_outbox_destination
WHERE o.destination = ?1 AND o.id > ?2 AND o.status = 'PENDING'
  AND (NOT ?3 OR NOT EXISTS (SELECT 1 FROM relais_waiting AS w WHERE w.id = o.id))
ORDER BY o.id
