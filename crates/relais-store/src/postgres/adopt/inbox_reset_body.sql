-- Called when :condition
-- A duplicate, which asks only for the result of the message, has another id.
BEGIN
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
VALUES (:name, :key, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'reset');
RETURN NULL;
END
