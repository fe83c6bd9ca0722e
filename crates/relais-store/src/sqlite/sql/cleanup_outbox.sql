-- Differs from postgres: no position from which the next pass continues. With ?3 it reads the first rows only:
-- where many are old, it need not find the first young ones. Without, it reads up to the first thousand rows that
-- were written within the retention: rows behind them cannot be old enough. The time a row was written decides,
-- because one that was retried by an operator ends late. Only the branch in use is evaluated.
DELETE FROM relais_outbox
WHERE id IN (SELECT id FROM relais_outbox
             WHERE status = 'DISPATCHED'
               AND dispatched_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
               AND id < coalesce(
                   CASE WHEN ?3
                        THEN (SELECT near.id FROM relais_outbox AS near ORDER BY near.id LIMIT 1 OFFSET 4000)
                        ELSE (SELECT young.id FROM relais_outbox AS young
                              WHERE young.created_at
                                    >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
                              ORDER BY young.id
                              LIMIT 1 OFFSET 1000) END, 9223372036854775807)
             ORDER BY id
             LIMIT ?2)
RETURNING id
