-- The last of the $3 rows that a page looks at, and whether it is recent enough for others behind it: all
-- rows in order, or those in trouble by their index. None if there are fewer; none for rows that wait if
-- those are few, because they have an index too. Sent with its values each time.
WITH few (yes) AS MATERIALIZED (
    SELECT $1::text IS NOT DISTINCT FROM 'RECEIVED'
           AND (SELECT count(*) <= $3::bigint FROM (
                    SELECT FROM relais_inbox
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                    LIMIT $3 + 1) AS fresh)
           AND (SELECT count(*) <= $3 FROM (
                    SELECT FROM relais_inbox
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
                    LIMIT $3 + 1) AS later)),
last (id) AS (
    (SELECT id FROM relais_inbox
     WHERE $1 IN ('FAILED', 'SERDE_ERROR', 'RETRY')
       AND status = $1 AND status IN ('FAILED', 'SERDE_ERROR', 'RETRY')
       AND id < coalesce($2::bigint, 9223372036854775807)
     ORDER BY id DESC
     OFFSET $3 - 1 LIMIT 1)
    UNION ALL
    (SELECT id FROM relais_inbox
     WHERE $1 IN ('FAILED', 'SERDE_ERROR', 'RETRY') IS NOT TRUE AND NOT (SELECT yes FROM few)
       AND id < coalesce($2::bigint, 9223372036854775807)
     ORDER BY id DESC
     OFFSET $3 - 1 LIMIT 1))
SELECT id, $4::bigint IS NULL OR received_at >= now() - $4 * INTERVAL '1 second'
FROM relais_inbox
WHERE id = (SELECT id FROM last)
