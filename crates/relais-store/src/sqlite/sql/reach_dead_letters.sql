-- Differs from postgres: times are text that sorts; open ones are found by their partial index in a part
-- of their own, because SQLite uses such an index only where the statement itself names them.
SELECT id, ?4 IS NULL OR parked_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds')
FROM relais_dead_letter
WHERE id = (
    SELECT id FROM (
        SELECT o.id FROM relais_dead_letter AS o INDEXED BY relais_dead_letter_open
        WHERE ?1 IS 'open' AND o.resolved_at IS NULL
          AND (o.parked_at, o.id) < (
                  iif(?2 IS NULL, '~', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?2)),
                  coalesce(?2, ''))
        ORDER BY o.parked_at DESC, o.id DESC
        LIMIT 1 OFFSET ?3 - 1)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_dead_letter AS a
        WHERE ?1 IS NOT 'open'
          AND (a.parked_at, a.id) < (
                  iif(?2 IS NULL, '~', (SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = ?2)),
                  coalesce(?2, ''))
        ORDER BY a.parked_at DESC, a.id DESC
        LIMIT 1 OFFSET ?3 - 1))
