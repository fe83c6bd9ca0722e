-- Failed for good: the row, its dead letter and, where asked, its parked key, in one statement.
-- An already parked key is touched, not skipped: whoever resolves its dead letter waits for us.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
failed AS (
    UPDATE relais_outbox AS o
    SET status = 'FAILED', attempts = s.attempts, next_attempt_at = NULL,
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($4::bigint[], $5::smallint[], $6::bigint[], $7::integer[], $8::boolean[],
                $9::text[], $10::text[])
         AS s (id, lane, epoch, attempts, park, error_code, error_message)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE o.id = s.id AND o.lane = s.lane AND o.destination = $3 AND o.status = 'PENDING'
    RETURNING o.id, o.message_id, o.destination, o.event_type, o.msg_key, o.payload, o.headers,
              o.attempts, o.error_code, o.error_message, s.park),
buried AS (
    INSERT INTO relais_dead_letter (origin, origin_id, message_id, destination, event_type, msg_key,
                                    payload, headers, failed_status, error_class, error_message,
                                    attempts, parked_by)
    SELECT 'outbox', id, message_id::text, destination, event_type, msg_key, payload, headers,
           'FAILED', error_code, error_message, attempts, $2
    FROM failed
    ORDER BY id
    RETURNING id, origin_id, destination, msg_key),
parked AS (
    INSERT INTO relais_parked_key AS p (origin, destination, msg_key, dead_letter_id)
    SELECT DISTINCT ON (b.destination, b.msg_key) 'outbox', b.destination, b.msg_key, b.id
    FROM buried AS b
    JOIN failed AS f ON f.id = b.origin_id
    WHERE f.park
    ORDER BY b.destination, b.msg_key, b.origin_id
    ON CONFLICT (origin, destination, key_hash) DO UPDATE SET parked_at = p.parked_at)
SELECT count(*) FROM failed
