-- A pending row waits as its columns show: in its open job, until its next attempt, or it is due at once.
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key, job_id)
SELECT r.id, r.destination, r.msg_key,
       CASE WHEN r.open_job IS NULL THEN coalesce(r.next_attempt_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) END,
       1, r.open_job
FROM (SELECT o.id, o.destination, o.msg_key, o.next_attempt_at,
             (SELECT j.id FROM relais_bulk_job AS j
              WHERE j.id = o.job_id AND j.finished_at IS NULL) AS open_job
      FROM relais_outbox AS o
      WHERE o.id = ?1 AND o.status = 'PENDING') AS r
WHERE true
ON CONFLICT (id) DO UPDATE
SET due_at = excluded.due_at, holds_key = 1, job_id = excluded.job_id
