-- As in postgres.
INSERT INTO relais_control (kind, name, rate_calls, rate_period_ms, concurrency, limits_changed)
VALUES (?1, ?2, ?3, ?4, ?5, 1)
ON CONFLICT (kind, name) DO UPDATE
SET rate_calls = excluded.rate_calls, rate_period_ms = excluded.rate_period_ms,
    concurrency = excluded.concurrency, limits_changed = relais_control.limits_changed + 1
