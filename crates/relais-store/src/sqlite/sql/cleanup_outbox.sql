-- Differs from postgres: no position from which the next pass continues. Rows behind the first thousand that
-- were written within the retention cannot be old enough: so a pass with nothing to do does not read the
-- table. The time a row was written decides, because one that was retried by an operator ends late.
DELETE FROM relais_outbox
WHERE id IN (SELECT id FROM relais_outbox
             WHERE status = 'DISPATCHED'
               AND dispatched_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
               AND id < coalesce((SELECT young.id FROM relais_outbox AS young
                                  WHERE young.created_at
                                        >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
                                  ORDER BY young.id
                                  LIMIT 1 OFFSET 1000), 9223372036854775807)
             ORDER BY id
             LIMIT ?2)
RETURNING id
