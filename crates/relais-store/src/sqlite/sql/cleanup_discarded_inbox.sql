-- Differs from postgres: a statement of its own. The failed rows of discarded dead letters that were just
-- removed come as a JSON array; a row that has another dead letter stays.
DELETE FROM relais_inbox
WHERE status = 'FAILED' AND id IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM relais_dead_letter AS d
                  WHERE d.origin = 'inbox' AND d.origin_id = relais_inbox.id
                    AND d.failed_status <> 'CONFLICT')
RETURNING id
