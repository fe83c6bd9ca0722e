-- Waiting rows whose time was changed in the outbox, and rows of a job that has ended.
UPDATE relais_waiting
SET job_id = NULL,
    due_at = coalesce(
        (SELECT o.next_attempt_at FROM relais_outbox AS o WHERE o.id = relais_waiting.id AND relais_waiting.job_id IS NULL),
        strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
WHERE id > ?1 AND id <= ?2
  AND (job_id IS NULL
       AND due_at <> (SELECT o.next_attempt_at FROM relais_outbox AS o WHERE o.id = relais_waiting.id)
       OR job_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM relais_bulk_job AS j
                       WHERE j.id = relais_waiting.job_id AND j.finished_at IS NULL))
