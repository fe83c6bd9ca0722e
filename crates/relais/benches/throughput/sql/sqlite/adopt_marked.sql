SELECT count(*) FROM outbox WHERE status = 'SENT' AND sent_at IS NOT NULL
