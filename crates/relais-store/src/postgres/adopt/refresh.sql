-- The payload as the application has it now; not of a row in a bulk job.
UPDATE relais_outbox SET payload = $2::text, headers = $3::text
WHERE id = $1 AND (payload <> $2::text OR headers <> $3::text) AND job_id IS NULL
