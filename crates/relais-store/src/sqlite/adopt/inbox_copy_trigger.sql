CREATE TRIGGER :copy_trigger AFTER INSERT ON :table FOR EACH ROW WHEN :pending
BEGIN
-- A worker links a duplicate with the message that was received before, or handles a row that was inserted again.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, '00000000-0000-0000-0000-000000000000', 'reset' FROM relais_inbox AS o
WHERE o.source_system = :source_system AND o.message_id = :message_id;
:copy
WHERE :is_new;
END
