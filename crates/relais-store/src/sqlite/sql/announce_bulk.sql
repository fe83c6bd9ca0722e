-- Differs from postgres: no sequences; one writer counts them up.
UPDATE relais_bulk_job SET moved = (SELECT coalesce(max(moved), 0) + 1 FROM relais_bulk_job)
WHERE id = ?1
