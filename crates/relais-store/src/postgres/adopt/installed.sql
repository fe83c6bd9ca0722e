-- The triggers of an adoption on a table, with the text of their functions, and whether a function still runs as it was
-- created: with the rights of its owner, with these settings, and called by no other role.
SELECT g.tgname::text, g.tgenabled <> 'D', p.prosrc, p.oid::regprocedure::text,
       p.prosecdef AND p.proconfig IS NOT DISTINCT FROM $2::text[]
       AND NOT EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                       WHERE a.grantee <> p.proowner)
FROM pg_trigger AS g
JOIN pg_proc AS p ON p.oid = g.tgfoid
WHERE g.tgrelid = to_regclass($1) AND g.tgname IN ('relais_adopted_copy', 'relais_adopted_reset')
ORDER BY g.tgname
