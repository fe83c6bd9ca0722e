-- As in postgres: if the copy is in flight, its settlement finds no row.
DELETE FROM relais_inbox WHERE id = ?1 AND status IN ('RECEIVED', 'RETRY', 'SERDE_ERROR')
