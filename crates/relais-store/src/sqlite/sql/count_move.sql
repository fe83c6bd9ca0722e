-- As in postgres.
UPDATE relais_lease SET moves = moves + 1 WHERE worker = ?1
