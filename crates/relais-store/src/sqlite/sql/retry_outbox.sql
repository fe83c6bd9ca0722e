-- Differs from postgres: one row a statement, with the fence in it; one transaction all the same.
UPDATE relais_outbox
SET attempts = coalesce(?6, attempts), lost_workers = ?10,
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?7 / 1000.0) || ' seconds'),
    error_code = ?8, error_message = ?9
WHERE id = ?1 AND status = 'PENDING' AND destination = ?5
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?2 AND l.lane = relais_outbox.lane AND l.owner = ?3 AND l.epoch = ?4)
