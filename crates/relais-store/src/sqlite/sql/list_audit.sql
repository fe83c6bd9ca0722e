-- Differs from postgres: the lines of one target, and those of one actor, are found by their indexes in
-- parts of their own.
SELECT id, at, actor, action, target, reason FROM relais_audit
WHERE id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_audit AS t
        WHERE t.target = ?2 AND (?1 IS NULL OR t.actor = ?1) AND t.id < coalesce(?3, 9223372036854775807)
        ORDER BY t.id DESC
        LIMIT ?4)
    UNION ALL
    SELECT id FROM (
        SELECT w.id FROM relais_audit AS w
        WHERE ?2 IS NULL AND w.actor = ?1 AND w.id < coalesce(?3, 9223372036854775807)
        ORDER BY w.id DESC
        LIMIT ?4)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_audit AS a
        WHERE ?1 IS NULL AND ?2 IS NULL AND a.id < coalesce(?3, 9223372036854775807)
        ORDER BY a.id DESC
        LIMIT ?4))
ORDER BY id DESC
