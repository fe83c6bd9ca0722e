-- Results in the words of :table. Each copy is locked before it is read: its state cannot change before the
-- commit. A copy that another transaction holds is written back by that one. A row that the application changed during
-- the call is not marked: it is sent again.
WITH settled AS MATERIALIZED (
    SELECT o.adopted_key::text:::key_type AS key, :state AS state, o.attempts,
           o.:done_at AS done_at, o.next_attempt_at, o.error_message
    FROM :copies AS o
    WHERE o.id = ANY ($1::bigint[]) AND o.adopted_by = $2 AND :written
      AND (:open OR NOT EXISTS (SELECT FROM relais_adopted_change AS c
                WHERE c.adopted_by = $2 AND c.adopted_key = o.adopted_key AND c.kind = 'reset'))
    FOR NO KEY UPDATE SKIP LOCKED),
locked AS MATERIALIZED (
    SELECT t.:id AS key FROM :table AS t
    WHERE t.:id = ANY (ARRAY(SELECT key FROM settled))
    ORDER BY t.:id
    FOR NO KEY UPDATE)
UPDATE :table AS t
SET :assignments
FROM settled AS s
JOIN locked AS l ON l.key = s.key
WHERE t.:id = s.key
