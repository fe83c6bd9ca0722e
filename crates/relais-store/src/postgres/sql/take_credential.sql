-- Makes the row if it is not there. The condition is on the row itself, so it holds after the lock.
INSERT INTO relais_credential AS held (name, owner, lease_until)
VALUES ($1, $2, clock_timestamp() + $3::bigint * INTERVAL '1 millisecond')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
    WHERE held.owner IS NULL OR coalesce(held.lease_until, '-infinity') <= clock_timestamp()
RETURNING version, sealed
