-- Adopts :table. The functions run with the rights of their owner: the application needs none on relais's tables.
CREATE OR REPLACE FUNCTION :schema.:copy_function() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $relais$
:copy_body$relais$;
REVOKE ALL ON FUNCTION :schema.:copy_function() FROM PUBLIC;
CREATE OR REPLACE FUNCTION :schema.:reset_function() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $relais$
:reset_body$relais$;
REVOKE ALL ON FUNCTION :schema.:reset_function() FROM PUBLIC;
