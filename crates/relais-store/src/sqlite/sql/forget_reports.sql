-- Differs from postgres: times are text that sorts.
DELETE FROM relais_report WHERE reported_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -(?1 / 1000.0) || ' seconds')
