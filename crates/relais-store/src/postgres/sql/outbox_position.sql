-- 0 for a destination without a position.
SELECT coalesce((SELECT position FROM relais_outbox_position WHERE destination = $1), 0)
