-- Differs from postgres: times are text that sorts.
SELECT count(*)
FROM relais_worker AS w
JOIN relais_lease AS l ON l.worker = w.worker
WHERE w.scope = ?1 AND l.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND l.lease_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?2 / 1000.0) || ' seconds')
