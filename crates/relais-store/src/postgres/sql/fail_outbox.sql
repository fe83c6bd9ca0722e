-- Failed for good; bury_outbox writes the dead letters. Returns the rows and their keys.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
failed AS (
    UPDATE relais_outbox AS o
    SET msg_key = coalesce(o.msg_key, o.aggregate_id COLLATE "C"),
        status = 'FAILED', attempts = s.attempts, next_attempt_at = NULL,
        error_code = s.error_code, error_message = s.error_message
    FROM unnest($4::bigint[], $5::smallint[], $6::bigint[], $7::integer[], $8::boolean[],
                $9::text[], $10::text[])
         AS s (id, lane, epoch, attempts, park, error_code, error_message)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE o.id = s.id AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = s.lane
      AND o.destination = $3 AND o.status = 'PENDING'
    RETURNING o.id, s.park, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key),
gone AS (
    DELETE FROM relais_waiting WHERE id = ANY (ARRAY(SELECT id FROM failed)))
SELECT id, park, msg_key FROM failed
