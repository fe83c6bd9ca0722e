-- As in postgres.
UPDATE relais_lease SET handed_over = handed_over + 1 WHERE worker = ?1
