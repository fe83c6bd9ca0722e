CREATE TRIGGER :reset_trigger AFTER UPDATE ON :table FOR EACH ROW WHEN :condition
BEGIN
-- A duplicate in an inbox, which asks only for the result of the message, has another id.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
VALUES (:name, :key, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'reset');
END
