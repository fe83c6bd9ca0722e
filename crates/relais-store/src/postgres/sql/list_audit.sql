-- Sent with its values each time, so that the planner sees which filters are set.
SELECT id, at, actor, action, target, reason
FROM relais_audit
WHERE ($1::text IS NULL OR actor = $1)
  AND ($2::text IS NULL OR target = $2)
  AND ($3::bigint IS NULL OR id < $3)
ORDER BY id DESC
LIMIT $4
