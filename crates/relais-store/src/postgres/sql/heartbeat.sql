-- The worker is alive for one lease more. Only the database's clock counts.
-- Event types that did not change are assigned to themselves: a long list is not stored again.
INSERT INTO relais_worker AS w (scope, worker, seen_until, event_types)
VALUES ($1, $2, clock_timestamp() + $3::bigint * INTERVAL '1 millisecond', $4::text[])
ON CONFLICT (scope, worker) DO UPDATE
SET seen_until = excluded.seen_until,
    event_types = CASE WHEN w.event_types = excluded.event_types THEN w.event_types
                       ELSE excluded.event_types END
