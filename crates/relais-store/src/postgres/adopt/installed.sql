-- The triggers of an adoption on a table, with the text of their functions.
SELECT g.tgname::text, g.tgenabled <> 'D', p.prosrc, p.oid::regprocedure::text
FROM pg_trigger AS g
JOIN pg_proc AS p ON p.oid = g.tgfoid
WHERE g.tgrelid = to_regclass($1) AND g.tgname IN ('relais_adopted_copy', 'relais_adopted_reset')
ORDER BY g.tgname
