-- Sent with its values each time, so that the planner sees which filters are set.
SELECT process_id, process_type, definition, coalesce(business_key, released_key) AS business_key, status,
       current_step, data, retries, progress, version, created_at, updated_at, key_hold
FROM relais_process
WHERE ($1::text IS NULL OR status = $1)
  AND ($2::text IS NULL OR process_type = $2)
  AND ($3::text IS NULL OR (md5(business_key)::uuid = md5($3)::uuid AND business_key = $3)
       OR (md5(released_key)::uuid = md5($3)::uuid AND released_key = $3))
  AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
  AND ($5::uuid IS NULL
       OR (created_at, process_id)
          < ((SELECT b.created_at FROM relais_process AS b WHERE b.process_id = $5), $5))
ORDER BY created_at DESC, process_id DESC
LIMIT $6
