-- An open one has the latest failure.
INSERT INTO relais_dead_letter (origin, message_id, event_type, msg_key, payload, failed_status,
                                error_class, error_message, attempts, parked_by)
SELECT 'process', process_id::text, process_type, coalesce(business_key, process_id::text), data,
       failed_status, error_class, error_message, attempts, $9
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::integer[])
     AS c (process_id, process_type, business_key, data, failed_status, error_class, error_message,
           attempts)
ON CONFLICT (message_id) WHERE origin = 'process' AND resolved_at IS NULL DO UPDATE
SET payload = excluded.payload, failed_status = excluded.failed_status,
    error_class = excluded.error_class, error_message = excluded.error_message,
    attempts = excluded.attempts, parked_by = excluded.parked_by, parked_at = excluded.parked_at
