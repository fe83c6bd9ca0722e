-- The payload as the application has it now, of a settled row: the job that delivered it may be named, and no longer
-- reads it.
UPDATE relais_outbox SET payload = $2::text, headers = $3::text
WHERE id = $1 AND (payload <> $2::text OR headers <> $3::text) AND status <> 'PENDING'
