-- Timers that are due become inbox rows. One that another worker is at is left to it: each becomes one
-- row. A process that was removed and started again may have timers of the same ids: then the row needs
-- an id of its own.
-- With $4, only timers of these process types: each program fires its own, into its inbox.
-- No reply can come to a command that has not been sent: its time begins when it has, so that a destination that
-- is unavailable uses up no attempts.
WITH due AS MATERIALIZED (
    SELECT t.process_id,
           (SELECT CASE WHEN o.status = 'PENDING' THEN now() ELSE o.dispatched_at END
                   + t.after_ms * INTERVAL '1 millisecond'
            FROM relais_outbox AS o
            WHERE o.message_id = t.command_id
            LIMIT 1) AS due_at
    FROM relais_timer AS t
    WHERE t.due_at <= now()
      AND ($4::text[] IS NULL
           OR (SELECT p.process_type FROM relais_process AS p
               WHERE p.process_id = t.process_id) = ANY ($4))
    ORDER BY t.due_at
    LIMIT $1
    FOR UPDATE OF t SKIP LOCKED),
postponed AS (
    UPDATE relais_timer AS t
    SET due_at = due.due_at
    FROM due
    WHERE t.process_id = due.process_id AND due.due_at > now()),
fired AS (
    DELETE FROM relais_timer AS t
    USING due
    WHERE t.process_id = due.process_id AND (due.due_at IS NULL OR due.due_at <= now())
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
