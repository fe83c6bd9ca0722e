-- Differs from postgres: the caller subtracts, because times are text.
SELECT due_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM relais_timer ORDER BY due_at LIMIT 1
