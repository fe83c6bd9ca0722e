UPDATE relais_inbox
SET status = 'PROCESSED', attempts = attempts + 1, processed_at = clock_timestamp()
WHERE id = ANY ($1::bigint[])
