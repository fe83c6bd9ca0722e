-- What other workers notice, so that they share the lanes again.
UPDATE relais_lease SET moves = moves + 1 WHERE worker = $1
