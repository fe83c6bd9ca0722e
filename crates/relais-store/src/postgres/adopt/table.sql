-- A table as the configuration names it, and where relais's own tables are.
SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relname::text, c.relkind::text,
       quote_ident(current_schema()), quote_ident(n.nspname), current_user::text,
       has_table_privilege(c.oid, 'DELETE'), c.relname LIKE 'relais\_%' AND n.nspname = current_schema(),
       -- Row-level security may hide rows, unless a policy shows and updates all of them.
       row_security_active(c.oid) AND NOT coalesce(
           (SELECT bool_or(l.polcmd IN ('*', 'r') AND l.is_open) AND bool_or(l.polcmd IN ('*', 'w') AND l.is_open)
                   AND bool_and(l.polpermissive)
            FROM (SELECT p.polcmd, p.polpermissive,
                         p.polpermissive AND pg_get_expr(p.polqual, p.polrelid) = 'true' AS is_open
                  FROM pg_policy AS p
                  WHERE p.polrelid = c.oid
                    AND EXISTS (SELECT FROM unnest(p.polroles) AS r (oid)
                                WHERE r.oid = 0 OR pg_has_role(r.oid, 'USAGE'))) AS l), FALSE)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
