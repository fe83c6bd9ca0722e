-- Differs from postgres: times are text; durations come in as milliseconds; event types are JSON.
INSERT INTO relais_worker (scope, worker, seen_until, event_types)
VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds'), ?4)
ON CONFLICT (scope, worker) DO UPDATE
SET seen_until = excluded.seen_until, event_types = excluded.event_types
