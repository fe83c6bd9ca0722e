-- What has been applied, in order.
SELECT version, name, needs, checksum FROM relais_schema ORDER BY version
