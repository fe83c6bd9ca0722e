-- As in postgres.
SELECT version, name, needs, checksum FROM relais_schema ORDER BY version
