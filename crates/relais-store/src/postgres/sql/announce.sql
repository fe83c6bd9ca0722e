-- The scopes that the worker serves, and the event types that it knows there, as JSON. Announcements that
-- did not change are not written again.
INSERT INTO relais_worker AS w (scope, worker, event_types)
SELECT a.scope, $1,
       CASE WHEN a.event_types IS NOT NULL
            THEN ARRAY(SELECT json_array_elements_text(a.event_types::json)) END
FROM unnest($2::text[], $3::text[]) AS a (scope, event_types)
ORDER BY a.scope
ON CONFLICT (scope, worker) DO UPDATE
SET event_types = excluded.event_types
WHERE w.event_types IS DISTINCT FROM excluded.event_types
