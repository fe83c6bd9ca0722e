-- Decided by an operator's action or by a late reply; recorded as every decision is.
WITH found AS MATERIALIZED (
    SELECT (SELECT d.id FROM relais_dead_letter AS d
            WHERE d.message_id = c.process_id::text AND d.origin = 'process' AND d.resolved_at IS NULL
            LIMIT 1) AS id, c.actor, c.reason, c.closure
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
        AS c (process_id, actor, reason, closure)),
closed AS (
    UPDATE relais_dead_letter AS d
    SET resolution = found.closure, resolved_by = found.actor, reason = found.reason,
        resolved_at = clock_timestamp()
    FROM found
    WHERE d.id = found.id AND d.resolved_at IS NULL
    RETURNING d.id, found.actor, found.reason, found.closure)
INSERT INTO relais_audit (actor, action, target, reason)
SELECT actor, 'dead-letter.' || closure, id::text, reason FROM closed
