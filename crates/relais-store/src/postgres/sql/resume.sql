UPDATE relais_control SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
WHERE kind = $1 AND name = $2 AND paused_at IS NOT NULL
