DELETE FROM relais_bulk_job
WHERE id IN (
    SELECT id FROM relais_bulk_job
    WHERE finished_at < clock_timestamp() - $1::bigint * INTERVAL '1 second'
    ORDER BY finished_at
    LIMIT $2)
