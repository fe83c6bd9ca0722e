-- Locks copies, then rows of :table in key order. The next statement then sees every change of these rows that is
-- committed.
WITH settled AS MATERIALIZED (
    SELECT o.adopted_key::text:::key_type AS key
    FROM :copies AS o
    WHERE o.id = ANY ($1::bigint[]) AND o.adopted_by = $2
    FOR NO KEY UPDATE SKIP LOCKED)
SELECT FROM :table AS t
WHERE t.:id = ANY (ARRAY(SELECT key FROM settled))
ORDER BY t.:id
FOR NO KEY UPDATE
