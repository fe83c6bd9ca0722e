-- Differs from postgres: times are text that sorts; processes of one business key, of one type, and
-- those that are not SUCCEEDED, are found by their indexes in parts of their own, because SQLite uses those
-- only where the statement itself names them.
SELECT p.process_id, p.process_type, p.definition, coalesce(p.business_key, p.released_key) AS business_key,
       p.status, p.current_step, p.data, p.retries, p.progress, p.version, p.created_at, p.updated_at, p.key_hold
FROM relais_process AS p
WHERE p.process_id IN (
    SELECT k.process_id FROM relais_process AS k
    WHERE (k.business_key = ?3 OR k.released_key = ?3)
      AND (?2 IS NULL OR k.process_type = ?2)
      AND (?1 IS NULL OR k.status = ?1)
      AND (?4 IS NULL OR k.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
      AND (k.created_at, k.process_id) < (
              iif(?5 IS NULL, '~', (SELECT b.created_at FROM relais_process AS b WHERE b.process_id = ?5)),
              coalesce(?5, ''))
    UNION ALL
    SELECT process_id FROM (
        SELECT o.process_id FROM relais_process AS o
        WHERE ?3 IS NULL AND o.status <> 'SUCCEEDED' AND o.status = ?1
          AND (?2 IS NULL OR o.process_type = ?2)
          AND (?4 IS NULL OR o.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND (o.created_at, o.process_id) < (
                  iif(?5 IS NULL, '~', (SELECT b.created_at FROM relais_process AS b WHERE b.process_id = ?5)),
                  coalesce(?5, ''))
        ORDER BY o.created_at DESC, o.process_id DESC
        LIMIT ?6)
    UNION ALL
    SELECT process_id FROM (
        SELECT t.process_id FROM relais_process AS t
        WHERE ?3 IS NULL
          AND (?1 IS NULL OR ?1 = 'SUCCEEDED') AND (?1 IS NULL OR t.status = 'SUCCEEDED')
          AND t.process_type = ?2
          AND (?4 IS NULL OR t.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND (t.created_at, t.process_id) < (
                  iif(?5 IS NULL, '~', (SELECT b.created_at FROM relais_process AS b WHERE b.process_id = ?5)),
                  coalesce(?5, ''))
        ORDER BY t.created_at DESC, t.process_id DESC
        LIMIT ?6)
    UNION ALL
    SELECT process_id FROM (
        SELECT a.process_id FROM relais_process AS a
        WHERE ?3 IS NULL AND ?2 IS NULL
          AND (?1 IS NULL OR ?1 = 'SUCCEEDED') AND (?1 IS NULL OR a.status = 'SUCCEEDED')
          AND (?4 IS NULL OR a.created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds'))
          AND (a.created_at, a.process_id) < (
                  iif(?5 IS NULL, '~', (SELECT b.created_at FROM relais_process AS b WHERE b.process_id = ?5)),
                  coalesce(?5, ''))
        ORDER BY a.created_at DESC, a.process_id DESC
        LIMIT ?6))
ORDER BY p.created_at DESC, p.process_id DESC
LIMIT ?6
