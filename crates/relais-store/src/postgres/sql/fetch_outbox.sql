-- Fresh rows in order of their ids, from the mark on, and rows whose time has come.
--
-- A row is in the way of later rows of its key while it waits after a failure (attempts or an error) or is in
-- a bulk job: a fresh row waits for any of them, a due row for those that are not due. One sent with a
-- delay is not. Rows of the open job itself wait far in the future, and are left out whatever happens.
-- A due row brings along the earlier due rows of its key, so that the limit cannot turn them
-- round.
--
-- Written so that no statistics can make the planner read much: `id + 0` and the hash are in one
-- index only, a scalar sub-select with LIMIT 1 stays one look-up, and NOT EXISTS guards save the
-- look-ups while there is no trouble at all.
--
-- The rows end where their payloads have $7 bytes, with the row that reaches them: a prefix in id order,
-- never empty. `octet_length` reads no payload. Without $7 the rows come without payload and headers.
WITH job (id) AS MATERIALIZED (
    SELECT id::text FROM relais_bulk_job WHERE destination = $1 AND finished_at IS NULL),
due AS MATERIALIZED (
    SELECT o.id, o.msg_key
    FROM relais_outbox AS o
    WHERE o.destination = $1 AND o.status = 'PENDING' AND o.next_attempt_at <= now()
      AND o.lane = ANY ($2::smallint[])
      AND (o.job_id IS NULL OR o.job_id IS DISTINCT FROM (SELECT id FROM job))
      AND o.msg_key NOT IN (SELECT unnest($5::text[]) COLLATE "C")
      AND o.id NOT IN (SELECT unnest($6::bigint[]))
      AND (SELECT e.id
           FROM relais_outbox AS e
           WHERE e.destination = $1
             AND hashtextextended(e.msg_key, 0) = hashtextextended(o.msg_key, 0)
             AND e.msg_key = o.msg_key AND e.id + 0 < o.id
             AND e.status = 'PENDING' AND e.next_attempt_at IS NOT NULL
             AND (e.attempts > 0 OR e.job_id IS NOT NULL OR e.error_code IS NOT NULL)
             AND (e.next_attempt_at > now() OR e.job_id = (SELECT id FROM job))
           ORDER BY e.id + 0
           LIMIT 1) IS NULL
      AND (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'outbox' AND p.destination = $1 AND p.key_hash = md5(o.msg_key)
           LIMIT 1) IS NULL
    ORDER BY o.next_attempt_at
    LIMIT $4),
chosen AS (
    SELECT id FROM due
    UNION
    SELECT earlier.id
    FROM (SELECT msg_key, max(id) AS id FROM due GROUP BY msg_key) AS last
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM relais_outbox AS e
        WHERE e.destination = $1
          AND hashtextextended(e.msg_key, 0) = hashtextextended(last.msg_key, 0)
          AND e.msg_key = last.msg_key AND e.id + 0 < last.id
          AND e.status = 'PENDING' AND e.next_attempt_at IS NOT NULL
          AND (e.attempts > 0 OR e.job_id IS NOT NULL OR e.error_code IS NOT NULL)
        ORDER BY e.id + 0
        LIMIT $4) AS earlier),
found AS (
(SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type,
        o.event_version, CASE WHEN $7::bigint IS NOT NULL THEN o.payload ELSE '' END AS payload,
        CASE WHEN $7::bigint IS NOT NULL THEN o.headers END AS headers,
        o.destination, o.msg_key, o.lane, o.created_at, o.status, o.attempts, o.next_attempt_at,
        o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code, o.error_message,
        o.lost_workers, o.id + 0 AS place
 FROM relais_outbox AS o
 WHERE o.destination = $1 AND o.status = 'PENDING' AND o.next_attempt_at IS NULL AND o.id + 0 > $3
   AND o.id NOT IN (SELECT unnest($6::bigint[]))
   AND o.lane = ANY ($2::smallint[])
   AND (o.job_id IS NULL OR o.job_id IS DISTINCT FROM (SELECT id FROM job))
   AND o.msg_key NOT IN (SELECT unnest($5::text[]) COLLATE "C")
   AND (NOT EXISTS (
            SELECT FROM relais_outbox AS e
            WHERE e.destination = $1
              AND e.status = 'PENDING' AND e.next_attempt_at IS NOT NULL
              AND (e.attempts > 0 OR e.job_id IS NOT NULL OR e.error_code IS NOT NULL))
        OR (SELECT e.id
            FROM relais_outbox AS e
            WHERE e.destination = $1
              AND hashtextextended(e.msg_key, 0) = hashtextextended(o.msg_key, 0)
              AND e.msg_key = o.msg_key AND e.id + 0 < o.id
              AND e.status = 'PENDING' AND e.next_attempt_at IS NOT NULL
              AND (e.attempts > 0 OR e.job_id IS NOT NULL OR e.error_code IS NOT NULL)
            ORDER BY e.id + 0
            LIMIT 1) IS NULL)
   AND (NOT EXISTS (
            SELECT FROM relais_parked_key AS p WHERE p.origin = 'outbox' AND p.destination = $1)
        OR (SELECT p.key_hash
            FROM relais_parked_key AS p
            WHERE p.origin = 'outbox' AND p.destination = $1 AND p.key_hash = md5(o.msg_key)
            LIMIT 1) IS NULL)
 ORDER BY o.id + 0
 LIMIT $4)
UNION ALL
(SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type,
        o.event_version, CASE WHEN $7::bigint IS NOT NULL THEN o.payload ELSE '' END AS payload,
        CASE WHEN $7::bigint IS NOT NULL THEN o.headers END AS headers,
        o.destination, o.msg_key, o.lane, o.created_at, o.status, o.attempts, o.next_attempt_at,
        o.dispatched_at, o.job_id, o.causation_id, o.correlation_id, o.error_code, o.error_message,
        o.lost_workers, o.id + 0 AS place
 FROM chosen
 JOIN relais_outbox AS o ON o.id = chosen.id
 WHERE o.id NOT IN (SELECT unnest($6::bigint[]))
 ORDER BY o.id + 0)
ORDER BY place
LIMIT $4)
SELECT sized.*
FROM (SELECT found.*,
             sum(octet_length(payload)) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING)
                 - octet_length(payload) AS bytes_before
      FROM found) AS sized
WHERE $7::bigint IS NULL OR bytes_before < $7
ORDER BY place
