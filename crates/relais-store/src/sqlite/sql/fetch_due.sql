-- Waiting rows whose time has come, unless their key is parked (?2: the destination has parked keys). The last
-- column says whether an earlier row holds the key: one in a bulk job, behind an obstacle, or with a later time.
-- The caller leaves out such a row and those behind it, so that the limit cannot turn two rows of a key round.
SELECT w.id, w.msg_key, octet_length(o.payload),
       EXISTS (SELECT 1 FROM relais_waiting AS h INDEXED BY relais_waiting_key
               WHERE h.destination = ?1 AND h.msg_key = w.msg_key AND h.id < w.id AND h.holds_key
                 AND (h.due_at IS NULL OR h.due_at > w.due_at))
FROM relais_waiting AS w INDEXED BY relais_waiting_due
CROSS JOIN relais_outbox AS o ON o.id = w.id AND o.status = 'PENDING'
WHERE w.destination = ?1 AND w.due_at IS NOT NULL AND w.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND w.job_id IS NULL
  AND (NOT ?2 OR NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                             WHERE p.origin = 'outbox' AND p.destination = ?1 AND p.msg_key = w.msg_key))
ORDER BY w.due_at, w.id
