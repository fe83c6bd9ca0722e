-- Results in the words of :table. A row that the application changed during the call is not marked: it is sent again.
-- Differs from postgres: SQLite has one writer, so nothing needs locking. The `+` makes it find copies by their ids.
UPDATE :table AS t
SET :assignments
FROM (SELECT o.adopted_key AS key, :state AS state, o.attempts, o.:done_at AS done_at, o.next_attempt_at,
             o.error_message
      FROM :copies AS o
      WHERE o.id IN (SELECT value FROM json_each(?1)) AND +o.adopted_by = ?2 AND :written
        AND (:open OR NOT EXISTS (SELECT 1 FROM relais_adopted_change AS c
                  WHERE c.adopted_by = ?2 AND c.adopted_key = o.adopted_key AND c.kind = 'reset'))) AS s
WHERE t.:id = s.key
