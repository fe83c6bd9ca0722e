DELETE FROM relais_adopted_change WHERE adopted_by = ?1
