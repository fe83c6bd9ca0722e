-- The rows of :table that bury.sql copied.
DELETE FROM :table AS t
WHERE t.:id IN (
    SELECT o.adopted_key FROM relais_outbox AS o
    WHERE o.id IN (SELECT value FROM json_each(?1)) AND +o.adopted_by = ?2 AND o.status = 'FAILED'
      AND NOT EXISTS (SELECT 1 FROM relais_adopted_change AS c
                      WHERE c.adopted_by = ?2 AND c.adopted_key = o.adopted_key AND c.kind = 'reset'))
