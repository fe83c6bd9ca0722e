SELECT process_id, seq, at, message_id, event_type, event
FROM relais_process_log
WHERE process_id = $1 AND seq < coalesce($2::bigint, 9223372036854775807)
ORDER BY seq DESC
LIMIT $3
