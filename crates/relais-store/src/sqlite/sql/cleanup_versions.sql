-- Differs from postgres: times are text that sorts, and they have an index.
DELETE FROM relais_version
WHERE (aggregate_type, aggregate_id) IN (
    SELECT aggregate_type, aggregate_id FROM relais_version
    WHERE seen_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')
    ORDER BY seen_at
    LIMIT ?2)
