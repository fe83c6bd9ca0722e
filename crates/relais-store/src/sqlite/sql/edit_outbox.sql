-- As in postgres: the row stays as it is until it is retried.
UPDATE relais_outbox SET payload = ?2 WHERE id = ?1 AND status = 'FAILED'
