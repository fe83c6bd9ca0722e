-- Differs from postgres: one range a statement.
SELECT id, CASE WHEN status = 'PENDING' THEN destination END
FROM relais_outbox
WHERE id BETWEEN ?1 AND ?2
ORDER BY id
LIMIT ?3
