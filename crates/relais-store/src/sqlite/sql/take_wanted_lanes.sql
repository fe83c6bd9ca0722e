-- Differs from postgres: no SKIP LOCKED. SQLite has one writer, and it is us.
UPDATE relais_lane SET owner = ?2, epoch = epoch + 1, wanted_type = NULL
WHERE scope = ?1 AND owner IS NULL AND wanted_type IN (SELECT value FROM json_each(?3))
RETURNING lane, epoch, unclean
