-- Differs from postgres: times are text that sorts.
SELECT count(*), coalesce(min(l.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), FALSE)
FROM relais_lane AS o
LEFT JOIN relais_lease AS l ON l.worker = o.owner
WHERE o.scope = ?1 AND o.owner IS NOT ?2
GROUP BY o.owner
