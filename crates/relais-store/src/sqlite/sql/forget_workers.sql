-- Differs from postgres: times are text that sorts.
DELETE FROM relais_worker WHERE seen_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -86400 || ' seconds')
