-- Differs from postgres: SQLite keeps the text of a trigger.
SELECT name, sql FROM sqlite_schema
WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND name LIKE 'relais\_adopted\_%' ESCAPE '\'
ORDER BY name
