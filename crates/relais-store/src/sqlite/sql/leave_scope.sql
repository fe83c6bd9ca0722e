-- As in postgres.
DELETE FROM relais_worker WHERE scope = ?1 AND worker = ?2
