CREATE TRIGGER :copy_trigger AFTER INSERT ON :table FOR EACH ROW WHEN :pending
BEGIN
-- An id that another message has fails the INSERT, also one with OR IGNORE or OR REPLACE.
SELECT RAISE(ABORT, 'relais: the id of the row is the id of another message')
FROM relais_outbox AS o
WHERE o.message_id = :message_id AND o.destination = :destination
  AND (o.adopted_by IS NOT :name OR o.adopted_key IS NOT :key);
-- A row that was copied before is requested again.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, o.message_id, 'reset' FROM relais_outbox AS o
WHERE o.adopted_by = :name AND o.adopted_key = :key AND o.destination = :destination;
:copy
WHERE :is_new;
END
