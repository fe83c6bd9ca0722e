-- Called when :condition
BEGIN
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
VALUES (:name, :key, :message_id, 'reset');
RETURN NULL;
END
