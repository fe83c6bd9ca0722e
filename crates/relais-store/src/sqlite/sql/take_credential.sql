-- As in postgres: makes the row if it is not there.
INSERT INTO relais_credential AS held (name, owner, lease_until)
VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds'))
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
    WHERE held.owner IS NULL OR coalesce(held.lease_until, '') <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING version, sealed
