-- Differs from postgres: one lane a statement.
UPDATE relais_lane
SET owner = NULL, wanted_type = ?4, unclean = ?5
WHERE scope = ?1 AND owner = ?2 AND lane = ?3
