-- Adopts :table. The functions run with the rights of their owner: the application needs none on relais's tables.
CREATE OR REPLACE FUNCTION :schema.:copy_function() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $relais$
:copy_body$relais$;
REVOKE ALL ON FUNCTION :schema.:copy_function() FROM PUBLIC;
CREATE OR REPLACE FUNCTION :schema.:reset_function() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $relais$
:reset_body$relais$;
REVOKE ALL ON FUNCTION :schema.:reset_function() FROM PUBLIC;
-- Roles that were granted EXECUTE since, or by default privileges.
DO $relais$ DECLARE one text; BEGIN
FOR one IN SELECT format('REVOKE ALL ON FUNCTION %s FROM %I', p.oid::regprocedure, pg_get_userbyid(a.grantee))
           FROM pg_proc AS p CROSS JOIN aclexplode(p.proacl) AS a
           WHERE p.oid IN (:copy_name::regprocedure, :reset_name::regprocedure)
             AND a.grantee NOT IN (0, p.proowner)
LOOP EXECUTE one; END LOOP; END $relais$;
