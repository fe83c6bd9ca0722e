-- Differs from postgres: the lanes were chosen by free_lanes just before, under the same write lock.
UPDATE relais_lane
SET owner = ?2, epoch = epoch + 1, wanted_type = NULL,
    lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds')
WHERE scope = ?1 AND lane IN (SELECT value FROM json_each(?4))
RETURNING lane, epoch
