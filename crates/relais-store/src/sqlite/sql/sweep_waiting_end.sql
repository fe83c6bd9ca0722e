-- The last of the next ?2 waiting rows.
SELECT max(id) FROM (SELECT id FROM relais_waiting WHERE id > ?1 ORDER BY id LIMIT ?2)
