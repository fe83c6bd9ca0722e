-- Differs from postgres: times are text that sorts.
SELECT count(*) FROM relais_worker
WHERE scope = ?1 AND seen_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND seen_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?2 / 1000.0) || ' seconds')
