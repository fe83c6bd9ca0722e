UPDATE outbox SET status = 'SENT', sent_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = ?1
