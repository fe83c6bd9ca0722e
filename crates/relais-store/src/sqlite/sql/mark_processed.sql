-- Differs from postgres: one row a statement, with the fence in it; one transaction all the same.
UPDATE relais_inbox
SET status = 'PROCESSED', attempts = attempts + 1, processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    next_attempt_at = NULL, error_stage = NULL, error_code = NULL, error_message = NULL
WHERE id = ?1 AND status IN ('RECEIVED', 'RETRY')
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?2 AND l.lane = relais_inbox.lane AND l.owner = ?3 AND l.epoch = ?4)
