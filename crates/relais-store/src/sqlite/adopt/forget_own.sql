-- Only SQLite: the triggers fired for the UPDATE of relais itself. No other writer was between.
DELETE FROM relais_adopted_change WHERE id > ?1 AND kind = 'reset'
