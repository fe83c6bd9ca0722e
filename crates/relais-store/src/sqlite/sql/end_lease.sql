-- As in postgres.
DELETE FROM relais_lease WHERE worker = ?1 AND NOT EXISTS (SELECT 1 FROM relais_worker WHERE worker = ?1)
