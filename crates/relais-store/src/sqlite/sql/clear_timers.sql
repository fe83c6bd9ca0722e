-- Differs from postgres: one row a statement.
DELETE FROM relais_timer WHERE process_id = ?1
