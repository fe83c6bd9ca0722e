-- Differs from postgres: the lanes come as the bits of one integer, because SQLite has no arrays.
-- Fresh rows walk their partial index in order; rows whose time has come walk theirs. Both wait for
-- an earlier row of their key in backoff or in a bulk job: of several that are due, the first goes
-- first and alone. Rows of the open job wait far in the future, and are left out whatever happens.
-- The guards before the look-ups save these while there is no trouble.
-- The rows end where their payloads have ?6 bytes, with the row that reaches them: a prefix in id order,
-- never empty. `octet_length` reads no payload, and the payloads are read only after the cut.
-- Without ?6 the rows come without payload and headers. Fresh rows up to ?7 wait behind parked keys.
WITH open (id) AS (
    SELECT id FROM (
        SELECT f.id FROM relais_outbox AS f INDEXED BY relais_outbox_fresh
        WHERE f.destination = ?1 AND f.status = 'PENDING' AND f.next_attempt_at IS NULL
          AND f.id > ?7 AND (?2 >> f.lane) & 1
          AND (f.job_id IS NULL
               OR f.job_id IS NOT (SELECT j.id FROM relais_bulk_job AS j
                                   WHERE j.destination = ?1 AND j.finished_at IS NULL))
          AND (?4 = '[]' OR f.msg_key NOT IN (SELECT value FROM json_each(?4)))
          AND (?5 = '[]' OR f.id NOT IN (SELECT value FROM json_each(?5)))
          AND (NOT EXISTS (SELECT 1 FROM relais_outbox AS h INDEXED BY relais_outbox_held
                           WHERE h.destination = ?1 AND h.status = 'PENDING'
                             AND h.next_attempt_at IS NOT NULL
                             AND (h.attempts > 0 OR h.job_id IS NOT NULL OR h.error_code IS NOT NULL))
               OR NOT EXISTS (SELECT 1 FROM relais_outbox AS h
                              WHERE h.destination = ?1 AND h.msg_key = f.msg_key
                                AND h.id < f.id AND h.status = 'PENDING'
                                AND h.next_attempt_at IS NOT NULL
                                AND (h.attempts > 0 OR h.job_id IS NOT NULL OR h.error_code IS NOT NULL)))
          AND (NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                           WHERE p.origin = 'outbox' AND p.destination = ?1)
               OR NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                              WHERE p.origin = 'outbox' AND p.destination = ?1
                                AND p.msg_key = f.msg_key))
        ORDER BY f.id
        LIMIT ?3)
    UNION ALL
    SELECT id FROM (
        SELECT w.id FROM relais_outbox AS w INDEXED BY relais_outbox_due
        WHERE w.destination = ?1 AND w.status = 'PENDING' AND w.next_attempt_at IS NOT NULL
          AND w.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
          AND (?2 >> w.lane) & 1
          AND (w.job_id IS NULL
               OR w.job_id IS NOT (SELECT j.id FROM relais_bulk_job AS j
                                   WHERE j.destination = ?1 AND j.finished_at IS NULL))
          AND w.msg_key NOT IN (SELECT value FROM json_each(?4))
          AND w.id NOT IN (SELECT value FROM json_each(?5))
          AND NOT EXISTS (SELECT 1 FROM relais_outbox AS h
                          WHERE h.destination = w.destination AND h.msg_key = w.msg_key
                            AND h.id < w.id AND h.status = 'PENDING'
                            AND h.next_attempt_at IS NOT NULL
                            AND (h.attempts > 0 OR h.job_id IS NOT NULL OR h.error_code IS NOT NULL))
          AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                          WHERE p.origin = 'outbox' AND p.destination = w.destination
                            AND p.msg_key = w.msg_key)
        ORDER BY w.next_attempt_at, w.id
        LIMIT ?3)),
found AS (
    SELECT s.id, octet_length(s.payload) AS bytes
    FROM relais_outbox AS s
    WHERE s.id IN (SELECT id FROM open)),
summed AS (
    SELECT id, sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before FROM found)
SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version,
       CASE WHEN ?6 IS NOT NULL THEN o.payload ELSE '' END,
       CASE WHEN ?6 IS NOT NULL THEN o.headers END,
       o.destination, o.msg_key, o.lane, o.created_at, o.status, o.attempts,
       o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code,
       o.error_message, o.lost_workers
FROM relais_outbox AS o
WHERE o.id IN (SELECT id FROM summed WHERE ?6 IS NULL OR bytes_before < ?6)
ORDER BY o.id
LIMIT ?3
