DELETE FROM relais_handled
WHERE (message_id, handler) IN (
    SELECT message_id, handler FROM relais_handled
    WHERE processed_at < now() - $1::bigint * INTERVAL '1 second'
    ORDER BY processed_at
    LIMIT $2)
