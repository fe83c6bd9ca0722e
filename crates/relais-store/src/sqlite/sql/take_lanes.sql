-- Differs from postgres: the lanes were chosen by free_lanes just before, under the same write lock.
UPDATE relais_lane SET owner = ?2, epoch = epoch + 1, wanted_type = NULL
WHERE scope = ?1 AND lane IN (SELECT value FROM json_each(?3))
RETURNING lane, epoch
