-- Differs from postgres: one scope a statement; event types are stored as JSON.
INSERT INTO relais_worker (scope, worker, event_types)
VALUES (?2, ?1, ?3)
ON CONFLICT (scope, worker) DO UPDATE
SET event_types = excluded.event_types
WHERE event_types IS NOT excluded.event_types
