-- Timers that are due become inbox rows. One that another worker is at is left to it: each becomes one
-- row. A command may have had a timer before, for the pause that came before it: then the row needs an
-- id of its own.
WITH due AS MATERIALIZED (
    SELECT process_id FROM relais_timer
    WHERE due_at <= now()
    ORDER BY due_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED),
fired AS (
    DELETE FROM relais_timer AS t
    USING due
    WHERE t.process_id = due.process_id
    RETURNING t.process_id, t.step, t.command_id, t.due_at)
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key,
                          aggregate_id, event_type, payload, event_ts)
SELECT 'timer:' || command_id
       || CASE WHEN (SELECT i.id FROM relais_inbox AS i
                     WHERE i.source_system = $2 AND i.message_id = 'timer:' || fired.command_id
                     LIMIT 1) IS NULL
               THEN '' ELSE ':' || gen_random_uuid() END,
       $2, '', 0, 0, process_id, process_id, $3,
       json_build_object('processId', process_id, 'step', step, 'commandId', command_id), due_at
FROM fired
ORDER BY due_at
