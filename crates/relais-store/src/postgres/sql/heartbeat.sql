-- The worker is alive for one lease more. Only the database's clock counts.
INSERT INTO relais_worker (scope, worker, seen_until)
VALUES ($1, $2, clock_timestamp() + $3::bigint * INTERVAL '1 millisecond')
ON CONFLICT (scope, worker) DO UPDATE SET seen_until = excluded.seen_until
