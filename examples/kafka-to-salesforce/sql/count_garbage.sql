SELECT count(*) FROM relais_inbox WHERE status = 'SERDE_ERROR'
