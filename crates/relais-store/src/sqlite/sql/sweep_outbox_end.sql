-- The last of the next ?2 rows of the outbox.
SELECT max(id) FROM (SELECT id FROM relais_outbox WHERE id > ?1 ORDER BY id LIMIT ?2)
