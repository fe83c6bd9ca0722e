-- Ends the lease; the secret stays.
UPDATE relais_credential SET owner = NULL, lease_until = NULL WHERE name = $1 AND owner = $2
