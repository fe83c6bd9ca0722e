-- Differs from postgres: the rows that were just removed come as a JSON array.
DELETE FROM relais_attempt WHERE origin = ?1 AND origin_id IN (SELECT value FROM json_each(?2))
