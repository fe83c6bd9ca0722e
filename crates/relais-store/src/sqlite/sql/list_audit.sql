-- Differs from postgres: the lines of one target are found by their index in a part of their own.
SELECT id, at, actor, action, target, reason FROM relais_audit
WHERE id IN (
    SELECT id FROM (
        SELECT t.id FROM relais_audit AS t
        WHERE t.target = ?2 AND (?1 IS NULL OR t.actor = ?1) AND (?3 IS NULL OR t.id < ?3)
        ORDER BY t.id DESC
        LIMIT ?4)
    UNION ALL
    SELECT id FROM (
        SELECT a.id FROM relais_audit AS a
        WHERE ?2 IS NULL AND (?1 IS NULL OR a.actor = ?1) AND (?3 IS NULL OR a.id < ?3)
        ORDER BY a.id DESC
        LIMIT ?4))
ORDER BY id DESC
