-- Fresh rows behind an obstacle, or with a delay, wait from now on. The ids come as a JSON array; the obstacles
-- are looked up again, because one may be removed since the walk.
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
SELECT f.id, f.destination, f.msg_key, CASE WHEN f.is_delayed THEN f.next_attempt_at END,
       NOT f.is_delayed OR f.attempts > 0 OR f.error_code IS NOT NULL
FROM (SELECT o.id, o.destination, o.msg_key, o.next_attempt_at, o.attempts, o.error_code,
             o.next_attempt_at IS NOT NULL
             AND o.next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS is_delayed
      FROM json_each(?2) AS passed
      CROSS JOIN relais_outbox AS o ON o.id = passed.value
      WHERE o.status = 'PENDING' AND o.destination = ?1) AS f
WHERE (f.is_delayed
       OR EXISTS (SELECT 1 FROM relais_parked_key AS p
                  WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = f.msg_key)
       OR EXISTS (SELECT 1 FROM relais_waiting AS h INDEXED BY relais_waiting_key
                  WHERE h.destination = ?1 AND h.msg_key = f.msg_key AND h.id < f.id AND h.holds_key))
ON CONFLICT (id) DO NOTHING
