-- As in postgres: the payload as the application has it now; not of a row in a bulk job.
UPDATE relais_outbox SET payload = ?2, headers = ?3
WHERE id = ?1 AND (payload <> ?2 OR headers <> ?3) AND job_id IS NULL
