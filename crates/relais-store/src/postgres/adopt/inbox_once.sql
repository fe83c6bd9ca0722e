-- Other rows of a message that were reset too: they get the result of the first, and do not ask for the message again.
UPDATE relais_adopted_change SET message_id = '00000000-0000-0000-0000-000000000000'
WHERE id IN (
    SELECT c.id
    FROM relais_adopted_change AS c
    JOIN :table AS t ON t.:id = c.adopted_key::text:::key_type
    WHERE c.adopted_by = :name AND c.kind = 'reset' AND c.message_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
      AND :source_system = $1 AND :message_id = $2
    FOR UPDATE OF c SKIP LOCKED)
