-- Differs from postgres: the lanes come as a JSON array; NULL stands for all of them.
UPDATE relais_lane SET owner = NULL, unclean = FALSE
WHERE scope = ?1 AND owner = ?2 AND (?3 IS NULL OR lane IN (SELECT value FROM json_each(?3)))
