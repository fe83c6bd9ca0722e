-- Differs from postgres: no generate_series in the SQLite library.
INSERT INTO relais_lane (scope, lane)
WITH RECURSIVE number (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM number WHERE lane < 63)
SELECT ?1, lane FROM number WHERE TRUE
ON CONFLICT (scope, lane) DO NOTHING
