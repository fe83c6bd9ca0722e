-- Whoever shares the lanes of the scope now, this worker included.
SELECT count(*) FROM relais_worker WHERE scope = $1 AND seen_until > clock_timestamp()
