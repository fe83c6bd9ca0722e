-- No fence, no look at the status: whoever comes last has the last word.
UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = ?1
