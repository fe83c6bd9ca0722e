-- As in postgres: 0 when nothing was applied yet.
SELECT coalesce(max(version), 0) FROM relais_schema
