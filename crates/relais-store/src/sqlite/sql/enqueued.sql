-- As in postgres: the row that holds a message id already.
SELECT id FROM relais_outbox WHERE message_id = ?1
