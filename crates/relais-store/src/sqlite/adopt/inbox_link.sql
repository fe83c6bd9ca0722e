-- The newest row of a message gets its result.
UPDATE relais_inbox SET adopted_by = ?2, adopted_key = ?3 WHERE id = ?1
