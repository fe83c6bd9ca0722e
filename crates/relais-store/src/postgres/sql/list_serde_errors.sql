-- Sent with its values each time, so that the planner sees which filters are set.
SELECT id
FROM relais_inbox
WHERE status = 'SERDE_ERROR' AND id > $1
  AND ($2::text IS NULL OR source_system = $2)
  AND ($3::text IS NULL OR error_code = $3)
  AND ($4::text IS NULL OR msg_key = $4)
  AND ($5::bigint IS NULL OR received_at >= now() - $5 * INTERVAL '1 second')
ORDER BY id
LIMIT $6
