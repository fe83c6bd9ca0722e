-- Failed for good: the row, its last attempt, its dead letter and, where asked, its parked key, in one
-- statement.
-- An already parked key is touched, not skipped: an operator who resolves its dead letter waits for this transaction.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $9 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE),
failed AS (
    UPDATE relais_inbox AS i
    SET status = 'FAILED', attempts = s.attempts, next_attempt_at = NULL, error_stage = 'BUSINESS',
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::boolean[],
                $7::text[], $8::text[])
         AS s (id, lane, epoch, attempts, park, error_code, error_message)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
    RETURNING i.id, i.message_id, i.source_system, i.event_type, i.msg_key, i.payload, i.headers,
              i.inbox, i.attempts, i.error_code, i.error_message, s.park),
kept AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'inbox', id, attempts, 'failed', error_code, error_message, $1 FROM failed),
buried AS (
    INSERT INTO relais_dead_letter (origin, origin_id, message_id, source_system, destination, event_type, msg_key,
                                    payload, headers, failed_status, error_class, error_message,
                                    attempts, parked_by, parks_key)
    SELECT 'inbox', id, message_id, source_system, nullif(inbox, ''), event_type, msg_key, payload,
           headers, 'FAILED', error_code, error_message, attempts, $1, park
    FROM failed
    ORDER BY id
    RETURNING id, origin_id, msg_key),
parked AS (
    INSERT INTO relais_parked_key AS p (origin, destination, msg_key, dead_letter_id)
    SELECT DISTINCT ON (f.inbox, b.msg_key) 'inbox', f.inbox, b.msg_key, b.id
    FROM buried AS b
    JOIN failed AS f ON f.id = b.origin_id
    WHERE f.park
    ORDER BY f.inbox, b.msg_key, b.origin_id
    ON CONFLICT (origin, destination, key_hash) DO UPDATE SET parked_at = p.parked_at)
SELECT count(*) FROM failed
