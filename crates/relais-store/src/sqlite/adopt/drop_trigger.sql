DROP TRIGGER :trigger
