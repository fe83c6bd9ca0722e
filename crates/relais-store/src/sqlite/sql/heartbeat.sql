-- Differs from postgres: times are text; durations come in as milliseconds.
INSERT INTO relais_worker (scope, worker, seen_until)
VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds'))
ON CONFLICT (scope, worker) DO UPDATE SET seen_until = excluded.seen_until
