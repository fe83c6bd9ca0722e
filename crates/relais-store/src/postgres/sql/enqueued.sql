-- The rows of messages that were there before.
SELECT id, message_id FROM relais_outbox WHERE message_id = ANY ($1::uuid[])
