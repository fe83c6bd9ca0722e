-- As in postgres: the row stored before under this id, and whether its content is the same: the
-- payload, also if an operator has edited it since, or the bytes that came.
SELECT i.id, coalesce(i.payload = ?3, FALSE) OR coalesce(i.raw_payload_base64 = ?4, FALSE)
       OR EXISTS (SELECT 1 FROM relais_dead_letter AS d
                  WHERE d.origin = 'inbox' AND d.origin_id = i.id AND d.failed_status <> 'CONFLICT'
                    AND d.original_payload = ?3) AS same
FROM relais_inbox AS i
WHERE i.source_system = ?1 AND i.message_id = ?2
