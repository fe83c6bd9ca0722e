-- The columns of a table: name, type as it is written, its base type, the most characters, whether it may be
-- NULL, whether it alone is the primary key, the rights of this role, and whether it has a default.
SELECT a.attname::text, format_type(a.atttypid, NULL), b.typname::text, b.typtype::text,
       CASE WHEN b.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END,
       a.attnotnull,
       EXISTS (SELECT FROM pg_index AS i
               WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indnkeyatts = 1
                 AND i.indkey[0] = a.attnum),
       has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
       has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
       has_column_privilege(a.attrelid, a.attnum, 'INSERT'),
       a.atthasdef OR a.attidentity <> ''
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
JOIN pg_type AS b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
