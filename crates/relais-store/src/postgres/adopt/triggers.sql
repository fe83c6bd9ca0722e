-- Writers of :table wait from here until the commit.
CREATE TRIGGER relais_adopted_copy AFTER INSERT ON :table
REFERENCING NEW TABLE AS relais_new
FOR EACH STATEMENT EXECUTE FUNCTION :schema.:copy_function();
CREATE TRIGGER relais_adopted_reset AFTER UPDATE ON :table
FOR EACH ROW WHEN (:condition)
EXECUTE FUNCTION :schema.:reset_function();
