-- Differs from postgres: one row a statement; the caller has compared the epoch of its lane in this transaction.
-- `ascii_lane` is a function of the connection, cheaper than the column.
UPDATE relais_outbox
SET status = 'DISPATCHED', attempts = attempts + 1, dispatched_at = ?4,
    next_attempt_at = NULL, error_code = NULL, error_message = NULL
WHERE id = ?1 AND status = 'PENDING' AND destination = ?2
  AND coalesce(ascii_lane(msg_key), lane) = ?3
