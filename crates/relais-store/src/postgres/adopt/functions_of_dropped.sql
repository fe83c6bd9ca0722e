-- The functions of these names: their triggers were dropped with the table.
SELECT p.oid::regprocedure::text
FROM pg_proc AS p
WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = ANY ($1::text[])
ORDER BY p.proname
