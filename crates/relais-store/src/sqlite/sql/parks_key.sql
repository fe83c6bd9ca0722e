-- Differs from postgres: a statement of its own. Later rows of the key wait for a decision about this one.
UPDATE relais_dead_letter SET parks_key = 1 WHERE id = ?1
