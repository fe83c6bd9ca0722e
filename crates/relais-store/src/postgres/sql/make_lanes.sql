-- Every scope has all 64 lanes; most times they are there already.
INSERT INTO relais_lane (scope, lane)
SELECT $1, lane::smallint FROM generate_series(0, 63) AS lane
ON CONFLICT (scope, lane) DO NOTHING
