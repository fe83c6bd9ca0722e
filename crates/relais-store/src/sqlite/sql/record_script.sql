-- As in postgres.
INSERT INTO relais_schema (version, name, needs, checksum) VALUES (?1, ?2, ?3, ?4)
