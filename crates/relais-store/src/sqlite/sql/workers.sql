-- Differs from postgres: times are text that sorts.
SELECT w.scope, w.worker,
       (SELECT count(*) FROM relais_lane AS l WHERE l.scope = w.scope AND l.owner = w.worker) AS lanes,
       w.seen_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS alive
FROM relais_worker AS w
ORDER BY w.scope, w.worker
