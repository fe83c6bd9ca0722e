UPDATE plain_relay SET status = 'DISPATCHED', dispatched_at = now() WHERE id = ANY ($1)
