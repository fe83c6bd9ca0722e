SELECT l.scope || ' ' || CAST(l.lane AS TEXT)
FROM relais_lane AS l
JOIN relais_lease AS w ON w.worker = l.owner
WHERE w.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
