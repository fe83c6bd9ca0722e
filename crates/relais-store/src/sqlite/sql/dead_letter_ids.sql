-- Differs from postgres: ids are text, whose order is the same.
SELECT id FROM relais_dead_letter WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3
