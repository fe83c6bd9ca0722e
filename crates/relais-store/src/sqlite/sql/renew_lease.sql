-- Differs from postgres: times are text; durations come in as milliseconds.
INSERT INTO relais_lease (worker, lease_until, term)
VALUES (?1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?2 / 1000.0) || ' seconds'),
        CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
ON CONFLICT (worker) DO UPDATE
SET lease_until = excluded.lease_until,
    term = CASE WHEN lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                 AND lease_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', max(3600, 3 * ?2 / 1000.0) || ' seconds')
                THEN term
                ELSE max(term + 1, excluded.term) END
RETURNING term
