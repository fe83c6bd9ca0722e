INSERT INTO relais_control (kind, name, breaker_resets)
VALUES ($1, $2, 1)
ON CONFLICT (kind, name) DO UPDATE
SET breaker_resets = relais_control.breaker_resets + 1
