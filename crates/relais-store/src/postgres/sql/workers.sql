SELECT w.scope, w.worker,
       (SELECT count(*) FROM relais_lane AS l WHERE l.scope = w.scope AND l.owner = w.worker),
       w.seen_until > clock_timestamp()
FROM relais_worker AS w
ORDER BY w.scope, w.worker
