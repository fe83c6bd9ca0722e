-- New rows, in the order of the INSERT. A row that was copied before is requested again.
BEGIN
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, o.message_id, 'reset'
FROM relais_new AS t
JOIN relais_outbox AS o ON o.message_id = :message_id AND o.destination = :destination
WHERE :pending AND o.adopted_by = :name AND o.adopted_key = :key;
:copy;
RETURN NULL;
END
