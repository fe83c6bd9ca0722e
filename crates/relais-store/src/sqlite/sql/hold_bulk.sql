-- The fence. Differs from postgres: nothing to lock, SQLite has one writer.
SELECT destination FROM relais_bulk_job
WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND finished_at IS NULL
