-- As in postgres: only from the version that was read, and only by who holds the lease.
UPDATE relais_credential
SET sealed = ?4, version = version + 1, owner = NULL, lease_until = NULL
WHERE name = ?1 AND owner = ?2 AND version = ?3
