-- The write lock was held for ?1 milliseconds, so no worker could renew its lease: leases that were live when
-- that began last so much longer.
UPDATE relais_lease
SET lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', lease_until, (?1 / 1000.0) || ' seconds')
WHERE lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (-?1 / 1000.0) || ' seconds')
