-- Differs from postgres: the lanes come as the bits of one integer, because SQLite has no arrays. The caller
-- makes the rows due in relais_waiting.
UPDATE relais_outbox
SET lost_workers = ?6,
    next_attempt_at = min(next_attempt_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
WHERE id IN (SELECT w.id FROM relais_waiting AS w INDEXED BY relais_waiting_due
             WHERE w.destination = ?3 AND w.due_at IS NOT NULL AND w.job_id IS NULL
               AND w.due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?7 / 1000.0) || ' seconds'))
  AND status = 'PENDING' AND next_attempt_at IS NOT NULL AND lost_workers = ?5 AND (?4 >> lane) & 1
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?1 AND l.lane = relais_outbox.lane AND l.owner = ?2)
RETURNING id
