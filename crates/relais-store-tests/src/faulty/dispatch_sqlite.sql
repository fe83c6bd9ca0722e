-- Checks neither fence nor status: the last writer wins.
UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = ?1
