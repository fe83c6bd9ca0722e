-- The last attempts and the dead letters of rows that were marked FAILED just before and, where asked,
-- their parked keys, in one statement. An already parked key is touched, not skipped: a statement that resolves
-- its dead letter waits for us.
WITH failed AS MATERIALIZED (
    SELECT o.id, o.message_id, o.destination, o.event_type,
           coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, o.payload, o.headers,
           o.attempts, o.error_code, o.error_message, s.park
    FROM unnest($1::bigint[], $2::boolean[]) AS s (id, park)
    JOIN relais_outbox AS o ON o.id = s.id),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'outbox', id, attempts, 'failed', error_code, error_message, $3 FROM failed),
buried AS (
    INSERT INTO relais_dead_letter (origin, origin_id, message_id, destination, event_type, msg_key,
                                    payload, headers, failed_status, error_class, error_message,
                                    attempts, parked_by, parks_key)
    SELECT 'outbox', id, message_id::text, destination, event_type, msg_key, payload, headers,
           'FAILED', error_code, error_message, attempts, $3, park
    FROM failed
    ORDER BY id
    RETURNING id, origin_id, destination, msg_key)
INSERT INTO relais_parked_key AS p (origin, destination, msg_key, dead_letter_id)
SELECT DISTINCT ON (b.destination, b.msg_key) 'outbox', b.destination, b.msg_key, b.id
FROM buried AS b
JOIN failed AS f ON f.id = b.origin_id
WHERE f.park
ORDER BY b.destination, b.msg_key, b.origin_id
ON CONFLICT (origin, destination, key_hash) DO UPDATE SET parked_at = p.parked_at
