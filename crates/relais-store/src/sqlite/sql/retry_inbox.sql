-- Differs from postgres: one row a statement, with the fence in it; one transaction all the same.
UPDATE relais_inbox
SET status = 'RETRY', attempts = coalesce(?5, attempts), lost_workers = ?9,
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?6 / 1000.0) || ' seconds'),
    error_stage = 'BUSINESS', error_code = ?7, error_message = ?8,
    unknown_since = CASE WHEN ?7 IN ('UNKNOWN_EVENT_TYPE', 'PROCESS_DEFINITION')
                         THEN coalesce(unknown_since, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) END
WHERE id = ?1 AND status IN ('RECEIVED', 'RETRY')
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?2 AND l.lane = relais_inbox.lane AND l.owner = ?3 AND l.epoch = ?4)
