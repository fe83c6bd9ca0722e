-- Differs from postgres: times are text that sorts.
SELECT count(*) FROM relais_worker WHERE scope = ?1 AND seen_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
