-- As in postgres.
SELECT process_id, seq, at, message_id, event_type, event
FROM relais_process_log
WHERE message_id = ?1
ORDER BY at, process_id, seq
LIMIT ?2
