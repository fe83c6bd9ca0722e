SELECT kind, name, paused_at, paused_by, paused_reason, rate_calls, rate_period_ms, concurrency, limits_changed,
       breaker_resets
FROM relais_control
ORDER BY kind, name
LIMIT $1
