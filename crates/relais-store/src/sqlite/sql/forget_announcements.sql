-- Differs from postgres, where forget_workers does it.
DELETE FROM relais_worker
WHERE worker IN (SELECT worker FROM relais_lease
                 WHERE lease_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -3600 || ' seconds'))
