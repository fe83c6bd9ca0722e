-- Differs from postgres: only rows that wait; the names come as a JSON array. The caller finds fresh rows with
-- first_fresh.sql.
SELECT d.value
FROM json_each(?1) AS d
WHERE EXISTS (SELECT 1 FROM relais_waiting AS w INDEXED BY relais_waiting_due
              WHERE w.destination = d.value AND w.due_at IS NOT NULL
                AND w.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
