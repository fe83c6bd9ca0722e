-- The row goes again, first in its key because it has the lowest id. It waits and is due: no row becomes fresh
-- below the position.
WITH opened AS (
    UPDATE relais_outbox AS o
    SET status = 'PENDING', attempts = 0, lost_workers = 0, next_attempt_at = NULL, job_id = NULL,
        error_code = NULL, error_message = NULL
    WHERE o.id = $1 AND o.status = 'FAILED'
    RETURNING o.id, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key)
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
SELECT id, destination, msg_key, clock_timestamp(), TRUE FROM opened
ON CONFLICT (id) DO UPDATE SET due_at = excluded.due_at, holds_key = TRUE, job_id = NULL
