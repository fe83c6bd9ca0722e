-- No fence, no look at the status: whoever comes last has the last word.
UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = clock_timestamp() WHERE id = ANY ($1)
