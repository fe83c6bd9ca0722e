-- Differs from postgres: the tables and views of the main database, by a name without quotes.
SELECT name, type, sql LIKE 'CREATE VIRTUAL%', name LIKE 'relais\_%' ESCAPE '\'
FROM sqlite_schema
WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE
