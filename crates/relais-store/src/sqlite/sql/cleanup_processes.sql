-- Differs from postgres: times are text that sorts. Nothing was updated before it was created. Logs and
-- timers go along by their foreign keys.
DELETE FROM relais_process
WHERE process_id IN (
    SELECT p.process_id FROM relais_process AS p
    WHERE p.status IN ('SUCCEEDED', 'FAILED', 'COMPENSATED')
      AND p.created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
      AND p.updated_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
      AND NOT EXISTS (SELECT 1 FROM relais_dead_letter AS d
                      WHERE d.message_id = p.process_id AND d.origin = 'process'
                        AND d.resolved_at IS NULL)
    ORDER BY p.created_at
    LIMIT ?2)
