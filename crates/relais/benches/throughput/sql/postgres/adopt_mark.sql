UPDATE outbox SET status = 'SENT', sent_at = clock_timestamp() AT TIME ZONE 'UTC' WHERE id = ANY ($1)
