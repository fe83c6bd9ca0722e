-- Differs from postgres: the caller subtracts, because times are text.
SELECT due_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM relais_timer AS t
WHERE ?1 IS NULL OR (SELECT p.process_type FROM relais_process AS p
                     WHERE p.process_id = t.process_id) IN (SELECT value FROM json_each(?1))
ORDER BY due_at LIMIT 1
