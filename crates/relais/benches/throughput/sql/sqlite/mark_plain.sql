UPDATE plain_relay
SET status = 'DISPATCHED', dispatched_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ?1
