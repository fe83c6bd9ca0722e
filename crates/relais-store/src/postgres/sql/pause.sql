INSERT INTO relais_control (kind, name, paused_at, paused_by, paused_reason)
VALUES ($1, $2, clock_timestamp(), $3, $4)
ON CONFLICT (kind, name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
WHERE relais_control.paused_at IS NULL
