-- Differs from postgres: the lanes come as the bits of one integer, because SQLite has no arrays.
UPDATE relais_inbox
SET lost_workers = ?5,
    next_attempt_at = min(next_attempt_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL AND inbox = ?6
  AND lost_workers = ?4 AND (?3 >> lane) & 1
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?1 AND l.lane = relais_inbox.lane AND l.owner = ?2)
