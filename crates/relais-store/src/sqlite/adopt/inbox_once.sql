-- As in postgres: other rows of the message get the result of the first. CROSS JOIN reads the changes first.
UPDATE relais_adopted_change SET message_id = '00000000-0000-0000-0000-000000000000'
WHERE id IN (
    SELECT c.id
    FROM relais_adopted_change AS c
    CROSS JOIN :table AS t ON t.:id = c.adopted_key
    WHERE c.adopted_by = :name AND c.kind = 'reset' AND c.message_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
      AND :source_system = ?1 AND :message_id = ?2)
