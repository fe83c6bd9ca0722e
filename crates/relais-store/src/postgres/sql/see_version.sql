-- The versions that are not older than what was seen of their aggregates, at most one of each.
INSERT INTO relais_version (aggregate_type, aggregate_id, version)
SELECT aggregate_type, aggregate_id, version
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS m (aggregate_type, aggregate_id, version)
ORDER BY aggregate_type, aggregate_id
ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = excluded.version, seen_at = now()
    WHERE relais_version.version <= excluded.version
RETURNING aggregate_type, aggregate_id
