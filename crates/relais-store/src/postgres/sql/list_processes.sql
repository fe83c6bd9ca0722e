-- Sent with its values each time, so that the planner sees which filters are set. Those of a key are found by its two
-- indexes; they are few.
WITH page (process_id, created_at) AS (
    (SELECT process_id, created_at FROM relais_process
     WHERE $3::text IS NULL
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR process_type = $2)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($5::uuid IS NULL
            OR (created_at, process_id)
               < ((SELECT b.created_at FROM relais_process AS b WHERE b.process_id = $5), $5))
     ORDER BY created_at DESC, process_id DESC
     LIMIT $6)
    UNION ALL
    (SELECT process_id, created_at FROM relais_process
     WHERE md5(business_key)::uuid = md5($3)::uuid AND business_key = $3
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR process_type = $2)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($5::uuid IS NULL
            OR (created_at, process_id)
               < ((SELECT b.created_at FROM relais_process AS b WHERE b.process_id = $5), $5))
     OFFSET 0)
    UNION ALL
    (SELECT process_id, created_at FROM relais_process
     WHERE md5(released_key)::uuid = md5($3)::uuid AND released_key = $3 AND business_key IS DISTINCT FROM $3
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR process_type = $2)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($5::uuid IS NULL
            OR (created_at, process_id)
               < ((SELECT b.created_at FROM relais_process AS b WHERE b.process_id = $5), $5))
     OFFSET 0))
SELECT r.process_id, r.process_type, r.definition, coalesce(r.business_key, r.released_key) AS business_key, r.status,
       r.current_step, r.data, r.retries, r.progress, r.version, r.created_at, r.updated_at, r.key_hold
FROM (SELECT process_id, created_at FROM page ORDER BY created_at DESC, process_id DESC LIMIT $6) AS p
JOIN relais_process AS r ON r.process_id = p.process_id
ORDER BY p.created_at DESC, p.process_id DESC
