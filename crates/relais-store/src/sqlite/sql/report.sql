-- Differs from postgres: times are text that sorts.
INSERT INTO relais_report (worker, host, pid, version, figures)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (worker) DO UPDATE
SET figures = excluded.figures, reported_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
