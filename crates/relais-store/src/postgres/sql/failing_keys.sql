-- Keys of these destinations that are failing, and the oldest row of each destination: rows that wait for their time
-- after a failed call. The first $2 rows of each destination in the order of their times are read; with more of
-- them the number is a lower bound. A scalar sub-select with LIMIT 1 stays one look-up whatever the statistics are.
SELECT d.destination, f.keys, o.id, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key,
       coalesce((SELECT max(a.at) FROM relais_attempt AS a
                 WHERE a.origin = 'outbox' AND a.origin_id = o.id AND a.attempt = 1), o.created_at) AS since,
       o.attempts, o.next_attempt_at, o.error_code, o.error_message
FROM unnest($1::text[]) AS d (destination)
CROSS JOIN LATERAL (
    SELECT count(DISTINCT r.msg_key) AS keys, min(r.id) AS first
    FROM (SELECT w.id, w.msg_key, w.holds_key
          FROM relais_waiting AS w
          WHERE w.destination = d.destination AND w.due_at IS NOT NULL
          ORDER BY w.due_at
          LIMIT $2) AS r
    WHERE r.holds_key
      AND (SELECT e.error_code FROM relais_outbox AS e
           WHERE e.id = r.id AND e.status = 'PENDING'
           LIMIT 1) IS NOT NULL) AS f
JOIN relais_outbox AS o ON o.id = f.first
