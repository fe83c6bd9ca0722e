-- Differs from postgres: times are text that sorts. Nothing is resolved before it was parked.
DELETE FROM relais_dead_letter
WHERE id IN (SELECT id FROM relais_dead_letter
             WHERE resolved_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
               AND parked_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
             ORDER BY parked_at
             LIMIT ?2)
RETURNING origin, origin_id, resolution = 'discarded' AND failed_status <> 'CONFLICT'
