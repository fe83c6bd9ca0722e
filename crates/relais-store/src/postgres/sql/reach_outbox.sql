-- The last of the $3 rows that a page looks at, and whether it is recent enough for others behind it: all
-- rows in order, or failed ones by their dead letters. None if there are fewer; none for rows that wait if
-- those are few. Sent with its values each time. OFFSET 0 makes the join begin with the dead letters.
WITH few (yes) AS MATERIALIZED (
    SELECT $1::text IS NOT DISTINCT FROM 'PENDING'
           AND (SELECT count(*) <= $3::bigint FROM (SELECT FROM relais_pending LIMIT $3 + 1) AS open)),
last (id) AS (
    (SELECT o.id
     FROM (SELECT DISTINCT origin_id FROM relais_dead_letter
           WHERE origin = 'outbox' AND origin_id < coalesce($2::bigint, 9223372036854775807)
           ORDER BY origin_id DESC) AS d
     CROSS JOIN LATERAL (SELECT * FROM relais_outbox AS o WHERE o.id = d.origin_id OFFSET 0) AS o
     WHERE $1 = 'FAILED' AND o.status = 'FAILED'
     ORDER BY d.origin_id DESC
     OFFSET $3 - 1 LIMIT 1)
    UNION ALL
    (SELECT id FROM relais_outbox
     WHERE $1 = 'FAILED' IS NOT TRUE AND NOT (SELECT yes FROM few)
       AND id < coalesce($2::bigint, 9223372036854775807)
     ORDER BY id DESC
     OFFSET $3 - 1 LIMIT 1))
SELECT id, $4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second'
FROM relais_outbox
WHERE id = (SELECT id FROM last)
