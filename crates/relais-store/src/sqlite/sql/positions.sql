-- As in postgres.
SELECT source, partition_key, position FROM relais_source_position
WHERE source = ?1
ORDER BY partition_key
