SELECT process_id, seq, at, message_id, event_type, event
FROM relais_process_log
WHERE hashtextextended(message_id, 0) = hashtextextended($1 COLLATE "C", 0) AND message_id = $1
ORDER BY at, process_id, seq
LIMIT $2
