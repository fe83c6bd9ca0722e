-- Event types that other live workers of the scope know and this one does not.
SELECT DISTINCT t.event_type
FROM relais_worker AS w
JOIN relais_lease AS l ON l.worker = w.worker
CROSS JOIN LATERAL unnest(w.event_types) AS t (event_type)
WHERE w.scope = $1 AND w.worker <> $2 AND l.lease_until > clock_timestamp()
  AND t.event_type <> ALL ($3::text[])
