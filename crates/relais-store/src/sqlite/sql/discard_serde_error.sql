-- Differs from postgres: no statement of several writes; the dead letter follows in the same
-- transaction.
UPDATE relais_inbox SET status = 'FAILED' WHERE id = ?1 AND status = 'SERDE_ERROR'
