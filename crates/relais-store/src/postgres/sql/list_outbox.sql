-- Sent with its values each time, so that the planner sees which filters are set. Pending rows are found
-- behind the positions and in relais_waiting while there are no more than $12 of them, failed ones by their dead
-- letters; else among the newest. OFFSET 0 makes the join begin with those few. A part that is not asked for is false
-- by its first condition alone, so that the planner drops it.
WITH few (yes) AS MATERIALIZED (
    SELECT $1::text IS NOT DISTINCT FROM 'PENDING'
           AND (SELECT count(*) <= $12 FROM (SELECT FROM relais_pending LIMIT $12 + 1) AS open)),
page (id) AS (
    (SELECT o.id
     FROM (SELECT p.id FROM relais_pending AS p WHERE (SELECT yes FROM few)) AS p
     CROSS JOIN LATERAL (SELECT * FROM relais_outbox AS o WHERE o.id = p.id OFFSET 0) AS o
     WHERE $1 = 'PENDING' AND o.status = 'PENDING'
       AND ($2::text IS NULL OR o.event_type = $2)
       AND ($3::text IS NULL OR coalesce(o.msg_key, o.aggregate_id COLLATE "C") = $3)
       AND ($4::bigint IS NULL OR o.created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR o.destination = $7)
       AND ($9::text IS NULL OR o.error_code = $9)
       AND o.id < coalesce($5::bigint, 9223372036854775807) AND ($11::bigint IS NULL OR o.id >= $11)
     ORDER BY o.id DESC
     LIMIT $6)
    UNION ALL
    (SELECT o.id
     FROM (SELECT DISTINCT origin_id FROM relais_dead_letter
           WHERE origin = 'outbox' AND origin_id < coalesce($5::bigint, 9223372036854775807)
             AND ($11::bigint IS NULL OR origin_id >= $11)
           ORDER BY origin_id DESC) AS d
     CROSS JOIN LATERAL (SELECT * FROM relais_outbox AS o WHERE o.id = d.origin_id OFFSET 0) AS o
     WHERE $1 = 'FAILED' AND o.status = 'FAILED'
       AND ($2::text IS NULL OR o.event_type = $2)
       AND ($3::text IS NULL OR coalesce(o.msg_key, o.aggregate_id COLLATE "C") = $3)
       AND ($4::bigint IS NULL OR o.created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR o.destination = $7)
       AND ($9::text IS NULL OR o.error_code = $9)
       AND o.id < coalesce($5::bigint, 9223372036854775807) AND ($11::bigint IS NULL OR o.id >= $11)
     ORDER BY d.origin_id DESC
     LIMIT $6)
    UNION ALL
    (SELECT o.id
     FROM relais_outbox AS o
     WHERE NOT (SELECT yes FROM few) AND $1 = 'FAILED' IS NOT TRUE
       AND ($1::text IS NULL OR o.status = $1)
       AND ($2::text IS NULL OR o.event_type = $2)
       AND ($3::text IS NULL OR coalesce(o.msg_key, o.aggregate_id COLLATE "C") = $3)
       AND ($4::bigint IS NULL OR o.created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR o.destination = $7)
       AND ($9::text IS NULL OR o.error_code = $9)
       AND o.id < coalesce($5::bigint, 9223372036854775807) AND ($11::bigint IS NULL OR o.id >= $11)
     ORDER BY o.id DESC
     LIMIT $6))
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       CASE WHEN $10::int IS NULL THEN o.payload ELSE left(o.payload, $10) END AS payload,
       o.headers, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key,
       (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63)::smallint AS lane,
       o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id,
       o.correlation_id, o.error_code, o.error_message, o.lost_workers,
       octet_length(o.payload) AS payload_bytes
FROM (SELECT id FROM page ORDER BY id DESC LIMIT $6) AS p
JOIN relais_outbox AS o ON o.id = p.id
ORDER BY o.id DESC
