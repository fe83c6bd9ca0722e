-- As in postgres: no row is changed when a higher version has been seen.
INSERT INTO relais_version (aggregate_type, aggregate_id, version) VALUES (?1, ?2, ?3)
ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = excluded.version
WHERE relais_version.version <= excluded.version
