-- Differs from postgres: times are text that sorts.
SELECT w.scope, w.worker,
       (SELECT count(*) FROM relais_lane AS l WHERE l.scope = w.scope AND l.owner = w.worker) AS lanes,
       coalesce(l.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), FALSE) AS alive
FROM relais_worker AS w
LEFT JOIN relais_lease AS l ON l.worker = w.worker
ORDER BY w.scope, w.worker
