-- Microseconds until the first one is due.
SELECT greatest(0, ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000000))::bigint
FROM relais_timer
ORDER BY due_at
LIMIT 1
