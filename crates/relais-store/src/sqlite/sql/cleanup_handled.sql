-- Differs from postgres: times are text that sorts.
DELETE FROM relais_handled
WHERE (message_id, handler) IN (SELECT message_id, handler FROM relais_handled
                                WHERE processed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
                                ORDER BY processed_at
                                LIMIT ?2)
