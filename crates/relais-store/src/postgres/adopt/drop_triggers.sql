DROP TRIGGER IF EXISTS relais_adopted_copy ON :table;
DROP TRIGGER IF EXISTS relais_adopted_reset ON :table;
