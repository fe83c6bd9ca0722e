-- A table as the configuration names it, and where relais's own tables are.
SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relname::text, c.relkind::text,
       quote_ident(current_schema()), quote_ident(n.nspname), current_user::text,
       has_table_privilege(c.oid, 'DELETE'), c.relname LIKE 'relais\_%' AND n.nspname = current_schema()
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
