-- The payload as the application has it now.
UPDATE relais_inbox SET payload = $2::text WHERE id = $1 AND $2::text IS NOT NULL AND payload IS DISTINCT FROM $2::text
