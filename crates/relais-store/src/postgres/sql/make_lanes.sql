-- Every scope has all 64 lanes; most times they are there already. Then nothing is inserted at all: an
-- insert would wait for every transaction that is changing one of them, and a worker that stands still in the
-- midst of its heartbeat would stop the heartbeats of all others.
INSERT INTO relais_lane (scope, lane)
SELECT $1, lane::smallint FROM generate_series(0, 63) AS lane
WHERE (SELECT count(*) FROM relais_lane WHERE scope = $1) < 64
ON CONFLICT (scope, lane) DO NOTHING
