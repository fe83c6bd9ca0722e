-- The leases of bulk jobs, as in extend_leases.
UPDATE relais_bulk_job
SET lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', lease_until, (?1 / 1000.0) || ' seconds')
WHERE finished_at IS NULL
  AND lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (-?1 / 1000.0) || ' seconds')
