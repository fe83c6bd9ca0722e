-- Differs from postgres: one row a statement, with the fence in it; one transaction all the same.
UPDATE relais_outbox SET lost_workers = min(lost_workers + 1, 100)
WHERE id = ?1 AND status = 'PENDING' AND destination = ?5
  AND EXISTS (SELECT 1 FROM relais_lane AS l
              WHERE l.scope = ?2 AND l.lane = relais_outbox.lane AND l.owner = ?3 AND l.epoch = ?4)
