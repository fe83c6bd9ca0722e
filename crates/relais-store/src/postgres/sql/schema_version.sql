SELECT coalesce(max(version), 0)::bigint FROM relais_schema
