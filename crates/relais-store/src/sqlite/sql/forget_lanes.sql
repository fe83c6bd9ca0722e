-- Differs from postgres, where forget_workers does it: the next owners quarantine the first rows.
UPDATE relais_lane SET owner = NULL, unclean = TRUE
WHERE owner IN (SELECT worker FROM relais_lease
                WHERE lease_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -3600 || ' seconds'))
