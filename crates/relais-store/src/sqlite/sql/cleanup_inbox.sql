-- Differs from postgres: times are text that sorts. Only the oldest finished rows are looked at, so
-- that a pass with nothing to do does not read the table.
DELETE FROM relais_inbox
WHERE id IN (SELECT id FROM (SELECT id, processed_at FROM relais_inbox
                             WHERE status = 'PROCESSED'
                             ORDER BY id
                             LIMIT ?2)
             WHERE processed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds'))
RETURNING id
