-- Checks neither fence nor status: the last writer wins.
UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = clock_timestamp() WHERE id = ANY ($1)
