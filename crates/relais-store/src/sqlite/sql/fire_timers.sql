-- Differs from postgres: no statement of several writes; the caller puts what comes back into the
-- inbox, in the same transaction.
DELETE FROM relais_timer
WHERE process_id IN (SELECT process_id FROM relais_timer
                     WHERE due_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                       AND (?2 IS NULL
                            OR (SELECT p.process_type FROM relais_process AS p
                                WHERE p.process_id = relais_timer.process_id)
                               IN (SELECT value FROM json_each(?2)))
                     ORDER BY due_at
                     LIMIT ?1)
RETURNING process_id, step, command_id, due_at
