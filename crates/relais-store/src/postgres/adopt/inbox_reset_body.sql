-- Called when :condition
BEGIN
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
VALUES (:name, :key, '00000000-0000-0000-0000-000000000000', 'reset');
RETURN NULL;
END
