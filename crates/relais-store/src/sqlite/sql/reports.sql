-- Differs from postgres: times are text that sorts.
SELECT worker, host, pid, version, started_at, reported_at,
       reported_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -(?1 / 1000.0) || ' seconds') AS alive,
       figures
FROM relais_report
ORDER BY started_at, worker
LIMIT ?2
