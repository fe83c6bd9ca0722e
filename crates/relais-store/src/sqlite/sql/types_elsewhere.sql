-- Differs from postgres: event types are JSON arrays, times are text that sorts.
SELECT DISTINCT t.value
FROM relais_worker AS w
JOIN relais_lease AS l ON l.worker = w.worker
CROSS JOIN json_each(w.event_types) AS t
WHERE w.scope = ?1 AND w.worker <> ?2 AND l.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND t.value NOT IN (SELECT value FROM json_each(?3))
