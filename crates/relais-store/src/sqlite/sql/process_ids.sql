-- Differs from postgres: ids are text, whose order is the same.
SELECT process_id FROM relais_process WHERE process_id BETWEEN ?1 AND ?2 ORDER BY process_id LIMIT ?3
