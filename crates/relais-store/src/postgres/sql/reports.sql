SELECT worker, host, pid, version, started_at, reported_at,
       reported_at > clock_timestamp() - $1::bigint * INTERVAL '1 millisecond' AS alive,
       figures
FROM relais_report
ORDER BY started_at, worker
LIMIT $2
