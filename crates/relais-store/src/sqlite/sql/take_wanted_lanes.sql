-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
UPDATE relais_lane
SET owner = ?2, epoch = epoch + 1, wanted_type = NULL,
    lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds')
WHERE scope = ?1 AND owner IS NULL AND wanted_type IN (SELECT value FROM json_each(?4))
RETURNING lane, epoch, unclean
