-- As in postgres: the payload as the application has it now, of a settled row.
UPDATE relais_outbox SET payload = ?2, headers = ?3
WHERE id = ?1 AND (payload <> ?2 OR headers <> ?3) AND status <> 'PENDING'
