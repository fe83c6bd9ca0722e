DELETE FROM relais_adopted_change WHERE id = ?1
