SELECT scope || ' ' || CAST(lane AS TEXT) FROM relais_lane
WHERE owner IS NOT NULL AND lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
