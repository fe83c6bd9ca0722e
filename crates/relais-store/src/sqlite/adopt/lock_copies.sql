-- The copies of an adopted row: one for each destination that it had, newest first. SQLite has one writer.
SELECT id, destination, status FROM relais_outbox
WHERE adopted_by = ?1 AND adopted_key = ?2
ORDER BY id DESC
