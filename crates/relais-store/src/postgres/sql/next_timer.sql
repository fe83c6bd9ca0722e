-- Microseconds until the first one is due.
SELECT greatest(0, ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000000))::bigint
FROM relais_timer AS t
WHERE $1::text[] IS NULL
   OR (SELECT p.process_type FROM relais_process AS p WHERE p.process_id = t.process_id) = ANY ($1)
ORDER BY due_at
LIMIT 1
