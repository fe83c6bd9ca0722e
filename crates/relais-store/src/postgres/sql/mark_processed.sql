-- The last statement of a handler's transaction: the row is done if and only if all else is, and
-- only while its lane is still ours. The start ($6) proves that this still is the transaction in
-- which the handler worked. No row returned: roll back. The result of a row of an adopted table is written later.
WITH fence AS MATERIALIZED (
    SELECT epoch FROM relais_lane
    WHERE scope = $1 AND lane = $2 AND owner = $3 AND epoch = $4
    FOR SHARE),
marked AS (
    UPDATE relais_inbox AS i
    SET status = 'PROCESSED', attempts = i.attempts + 1, next_attempt_at = NULL,
        processed_at = clock_timestamp(), error_stage = NULL, error_code = NULL, error_message = NULL
    WHERE i.id = $5 AND i.lane = $2 AND i.status IN ('RECEIVED', 'RETRY')
      AND EXISTS (SELECT FROM fence)
      AND (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint = $6
    RETURNING i.adopted_by, i.adopted_key),
unwritten AS (
    INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
    SELECT adopted_by, adopted_key, '00000000-0000-0000-0000-000000000000', 'unwritten'
    FROM marked
    WHERE adopted_by IS NOT NULL)
SELECT 1 FROM marked
