-- Differs from postgres: times are text that sorts.
DELETE FROM relais_bulk_job
WHERE id IN (SELECT id FROM relais_bulk_job
             WHERE finished_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
             ORDER BY finished_at
             LIMIT ?2)
