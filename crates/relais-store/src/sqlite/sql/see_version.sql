-- As in postgres: no row is changed when a higher version has been seen.
INSERT INTO relais_version (aggregate_type, aggregate_id, version, seen_at)
VALUES (?1, ?2, ?3, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = excluded.version, seen_at = excluded.seen_at
WHERE relais_version.version <= excluded.version
