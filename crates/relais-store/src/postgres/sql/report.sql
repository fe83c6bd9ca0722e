INSERT INTO relais_report (worker, host, pid, version, figures)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (worker) DO UPDATE
SET figures = excluded.figures, reported_at = clock_timestamp()
