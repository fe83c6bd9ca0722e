-- How far the sources are read, in the transaction that stores their rows.
INSERT INTO relais_source_position (source, partition_key, position)
SELECT source, partition_key, position
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS m (source, partition_key, position)
ON CONFLICT (source, partition_key)
    DO UPDATE SET position = excluded.position, updated_at = clock_timestamp()
