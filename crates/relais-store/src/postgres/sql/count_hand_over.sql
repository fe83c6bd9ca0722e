-- What other workers notice, so that they take the lanes at once.
UPDATE relais_lease SET handed_over = handed_over + 1 WHERE worker = $1
