-- As in postgres: the copy of a row that was changed; its dead letter is closed.
DELETE FROM relais_outbox WHERE id = ?1 AND status = 'FAILED'
