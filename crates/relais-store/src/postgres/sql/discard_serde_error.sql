-- Undecodable: failed, with a dead letter that is resolved from the start. The bytes stay in the
-- row.
WITH failed AS (
    UPDATE relais_inbox
    SET status = 'FAILED'
    WHERE id = $1 AND status = 'SERDE_ERROR'
    RETURNING id, message_id, source_system, event_type, msg_key, payload, headers, attempts, error_code,
              error_message)
INSERT INTO relais_dead_letter (origin, origin_id, message_id, source_system, event_type, msg_key,
                                payload, headers, failed_status, error_class, error_message, attempts,
                                parked_by, resolution, resolved_by, resolved_at, reason)
SELECT 'inbox', id, message_id, source_system, event_type, msg_key, payload, headers, 'FAILED',
       error_code, error_message, attempts, $2, 'discarded', $2, clock_timestamp(), $3
FROM failed
