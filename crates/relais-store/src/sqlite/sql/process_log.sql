-- As in postgres.
SELECT process_id, seq, at, message_id, event_type, event
FROM relais_process_log
WHERE process_id = ?1 AND (?2 IS NULL OR seq < ?2)
ORDER BY seq DESC
LIMIT ?3
