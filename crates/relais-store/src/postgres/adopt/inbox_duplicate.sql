-- A row that waits for the result of its message.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
VALUES ($1, $2, '00000000-0000-0000-0000-000000000000', 'reset')
