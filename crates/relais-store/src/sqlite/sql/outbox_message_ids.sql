-- Differs from postgres: ids are text, whose order is the same.
SELECT DISTINCT message_id FROM relais_outbox WHERE message_id BETWEEN ?1 AND ?2 ORDER BY message_id LIMIT ?3
