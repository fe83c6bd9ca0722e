-- Resolved ones only. What was resolved that long ago was parked before, hence the index on age. The failed
-- row of a discarded one goes with it, unless another dead letter is about it; a conflict is about the
-- message that came first, which stays.
WITH gone AS (
    DELETE FROM relais_dead_letter
    WHERE id IN (
        SELECT id FROM relais_dead_letter
        WHERE resolved_at < now() - $1::bigint * INTERVAL '1 second'
          AND parked_at < now() - $1::bigint * INTERVAL '1 second'
        ORDER BY parked_at, id
        LIMIT $2)
      AND resolved_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM relais_parked_key AS p WHERE p.dead_letter_id = relais_dead_letter.id)
    RETURNING id, origin, origin_id, failed_status, resolution),
discarded AS (
    SELECT g.origin, g.origin_id
    FROM gone AS g
    WHERE g.resolution = 'discarded' AND g.origin_id IS NOT NULL AND g.failed_status <> 'CONFLICT'
      AND NOT EXISTS (SELECT FROM relais_dead_letter AS d
                      WHERE d.origin = g.origin AND d.origin_id = g.origin_id
                        AND d.failed_status <> 'CONFLICT' AND d.id NOT IN (SELECT id FROM gone))),
inbox AS (
    DELETE FROM relais_inbox
    WHERE status = 'FAILED'
      AND id = ANY (ARRAY (SELECT origin_id FROM discarded WHERE origin = 'inbox'))
    RETURNING id),
outbox AS (
    DELETE FROM relais_outbox
    WHERE status = 'FAILED'
      AND id = ANY (ARRAY (SELECT origin_id FROM discarded WHERE origin = 'outbox'))
    RETURNING id),
attempts AS (
    DELETE FROM relais_attempt
    WHERE (origin = 'inbox' AND origin_id = ANY (ARRAY (SELECT id FROM inbox)))
       OR (origin = 'outbox' AND origin_id = ANY (ARRAY (SELECT id FROM outbox))))
SELECT count(*) FROM gone
