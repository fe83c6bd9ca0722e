-- Differs from postgres: name, declared type, whether it may be NULL, whether it alone is the primary key, and
-- whether it has a default. An INTEGER PRIMARY KEY needs none.
SELECT c.name, c.type, c."notnull", c.dflt_value IS NOT NULL OR c.pk > 0,
       c.pk > 0 AND (SELECT count(*) FROM pragma_table_xinfo(?1) AS k WHERE k.pk > 0) = 1
FROM pragma_table_xinfo(?1) AS c
ORDER BY c.cid
