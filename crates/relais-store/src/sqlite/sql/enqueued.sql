-- Differs from postgres: one row a statement, and the caller refuses another message. The row that holds
-- a message id of this destination already, and whether it is the same message, also if it was edited.
SELECT o.id,
       o.event_type = ?3 AND o.msg_key = ?4
       AND (o.payload = ?5
            OR EXISTS (SELECT 1 FROM relais_dead_letter AS d
                       WHERE d.origin = 'outbox' AND d.origin_id = o.id AND d.original_payload = ?5))
FROM relais_outbox AS o
WHERE o.message_id = ?1 AND o.destination = ?2
