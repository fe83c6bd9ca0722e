-- Differs from postgres: no statement of several writes; the caller puts what comes back into the
-- inbox, in the same transaction.
DELETE FROM relais_timer
WHERE process_id IN (SELECT process_id FROM relais_timer
                     WHERE due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                     ORDER BY due_at
                     LIMIT ?1)
RETURNING process_id, step, command_id, due_at
