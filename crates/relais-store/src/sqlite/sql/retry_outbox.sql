-- Differs from postgres: one row a statement; the caller has compared the epoch of its lane in this transaction.
UPDATE relais_outbox
SET attempts = coalesce(?4, attempts), lost_workers = ?8,
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?5 / 1000.0) || ' seconds'),
    error_code = ?6, error_message = ?7
WHERE id = ?1 AND status = 'PENDING' AND destination = ?2 AND lane = ?3
