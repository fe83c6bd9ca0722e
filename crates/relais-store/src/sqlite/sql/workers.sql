-- Differs from postgres: times are text that sorts.
SELECT w.scope, w.worker,
       (SELECT count(*) FROM relais_lane AS l WHERE l.scope = w.scope AND l.owner = w.worker),
       w.seen_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM relais_worker AS w
ORDER BY w.scope, w.worker
