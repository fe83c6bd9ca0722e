-- As in postgres: what is still ours stays ours, also after it ran out.
UPDATE relais_bulk_job
SET lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?4 / 1000.0) || ' seconds')
WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND finished_at IS NULL
