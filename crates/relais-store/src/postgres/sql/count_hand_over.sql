-- What other workers notice, so that they take the lanes at once.
UPDATE relais_worker SET handed_over = handed_over + 1 WHERE scope = $1 AND worker = $2
