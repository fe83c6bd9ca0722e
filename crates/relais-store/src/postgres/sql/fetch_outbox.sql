-- Fresh rows (pending and not waiting) in order of their ids, from the mark on, and waiting rows whose time has
-- come.
--
-- A fresh row is blocked behind an earlier waiting row that holds its key, behind a parked key, and before its
-- time if it was sent with a delay. It comes without a payload, so that pass_outbox moves it to relais_waiting;
-- `behind` is the row in its way. A due row is blocked behind an earlier row of its key that is not due, and by
-- a parked key. It brings along the earlier rows of its key, so that the limit cannot turn them round.
--
-- Written so that no statistics can make the planner read much: only the index by destination and id has the
-- order of the walk, and a scalar sub-select with LIMIT 1 stays one look-up. While few keys wait or are parked
-- (`few`, or `no` at all), only rows of these keys are looked up; `keys` steps from key to key, however many rows
-- each of them has.
--
-- The rows end where their payloads have $7 bytes, with the row that reaches them: a prefix in id order,
-- never empty. `octet_length` reads no payload. Without $7 the rows come without payload and headers.
WITH RECURSIVE keys (hash, n) AS (
    SELECT (SELECT hashtextextended(msg_key, 0) FROM relais_waiting
            WHERE destination = $1
            ORDER BY destination, hashtextextended(msg_key, 0) LIMIT 1), 1
    UNION ALL
    SELECT (SELECT hashtextextended(w.msg_key, 0) FROM relais_waiting AS w
            WHERE w.destination = $1 AND hashtextextended(w.msg_key, 0) > keys.hash
            ORDER BY w.destination, hashtextextended(w.msg_key, 0) LIMIT 1), n + 1
    FROM keys WHERE hash IS NOT NULL AND n < 8),
waiting (no, few, hashes) AS MATERIALIZED (
    SELECT count(hash) = 0, count(hash) < 8,
           coalesce(array_agg(hash) FILTER (WHERE hash IS NOT NULL), '{}')
    FROM keys),
parked (no, few, hashes) AS MATERIALIZED (
    SELECT count(*) = 0, count(*) < 8, coalesce(array_agg(key_hash), '{}')
    FROM (SELECT key_hash FROM relais_parked_key
          WHERE origin = 'outbox' AND destination = $1 LIMIT 8) AS first_keys),
due AS MATERIALIZED (
    SELECT w.id, w.msg_key
    FROM relais_waiting AS w
    WHERE w.destination = $1 AND w.due_at <= now()
      AND (hashtext(w.msg_key) & 63) = ANY ($2::smallint[])
      AND w.msg_key NOT IN (SELECT unnest($5::text[]) COLLATE "C")
      AND w.id NOT IN (SELECT unnest($6::bigint[]))
      AND (SELECT e.id
           FROM relais_waiting AS e
           WHERE e.destination = $1
             AND hashtextextended(e.msg_key, 0) = hashtextextended(w.msg_key, 0)
             AND e.msg_key = w.msg_key AND e.id + 0 < w.id
             AND e.holds_key AND (e.due_at IS NULL OR e.due_at > now())
           ORDER BY e.id + 0
           LIMIT 1) IS NULL
      AND (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'outbox' AND p.destination = $1 AND p.key_hash = md5(w.msg_key)
           LIMIT 1) IS NULL
    ORDER BY w.due_at
    LIMIT $4),
chosen AS (
    SELECT id FROM due
    UNION
    SELECT earlier.id
    FROM (SELECT msg_key, max(id) AS id FROM due GROUP BY msg_key) AS last
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM relais_waiting AS e
        WHERE e.destination = $1
          AND hashtextextended(e.msg_key, 0) = hashtextextended(last.msg_key, 0)
          AND e.msg_key = last.msg_key AND e.id + 0 < last.id AND e.holds_key
        ORDER BY e.id + 0
        LIMIT $4) AS earlier),
found AS (
(SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type,
        o.event_version, CASE WHEN $7::bigint IS NOT NULL THEN o.payload ELSE '' END AS payload,
        CASE WHEN $7::bigint IS NOT NULL THEN o.headers END AS headers, o.destination,
        coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key,
        (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63)::smallint AS lane,
        o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id,
        o.correlation_id, o.error_code, o.error_message, o.lost_workers, FALSE AS waits,
        CASE WHEN (SELECT no FROM waiting) THEN NULL
             WHEN NOT (SELECT few FROM waiting)
                  OR hashtextextended(coalesce(o.msg_key, o.aggregate_id COLLATE "C"), 0)
                     = ANY ((SELECT hashes FROM waiting)::bigint[])
             THEN (SELECT e.id
                   FROM relais_waiting AS e
                   WHERE e.destination = $1
                     AND hashtextextended(e.msg_key, 0)
                         = hashtextextended(coalesce(o.msg_key, o.aggregate_id COLLATE "C"), 0)
                     AND e.msg_key = coalesce(o.msg_key, o.aggregate_id COLLATE "C")
                     AND e.id + 0 < o.id AND e.holds_key
                   ORDER BY e.id + 0
                   LIMIT 1) END AS behind,
        CASE WHEN (SELECT no FROM parked) THEN NULL
             WHEN NOT (SELECT few FROM parked)
                  OR md5(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) = ANY ((SELECT hashes FROM parked)::text[])
             THEN (SELECT p.key_hash
                   FROM relais_parked_key AS p
                   WHERE p.origin = 'outbox' AND p.destination = $1
                     AND p.key_hash = md5(coalesce(o.msg_key, o.aggregate_id COLLATE "C"))
                   LIMIT 1) END AS parked
 FROM relais_outbox AS o
 WHERE (o.destination, o.id) > ($1, $3) AND o.destination <= $1 AND o.status = 'PENDING'
   AND o.id NOT IN (SELECT unnest($6::bigint[]))
   AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = ANY ($2::smallint[])
   AND coalesce(o.msg_key, o.aggregate_id COLLATE "C") NOT IN (SELECT unnest($5::text[]) COLLATE "C")
   AND ((SELECT no FROM waiting)
        OR ((SELECT few FROM waiting)
            AND hashtextextended(coalesce(o.msg_key, o.aggregate_id COLLATE "C"), 0)
                <> ALL ((SELECT hashes FROM waiting)::bigint[]))
        OR (SELECT w.id FROM relais_waiting AS w WHERE w.id = o.id LIMIT 1) IS NULL)
 ORDER BY o.destination, o.id
 LIMIT $8)
UNION ALL
(SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type,
        o.event_version, CASE WHEN $7::bigint IS NOT NULL THEN o.payload ELSE '' END,
        CASE WHEN $7::bigint IS NOT NULL THEN o.headers END, o.destination,
        coalesce(o.msg_key, o.aggregate_id COLLATE "C"), (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63)::smallint,
        o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id, o.causation_id,
        o.correlation_id, o.error_code, o.error_message, o.lost_workers, TRUE, NULL, NULL
 FROM chosen
 JOIN relais_outbox AS o ON o.id = chosen.id
 WHERE o.status = 'PENDING' AND o.id NOT IN (SELECT unnest($6::bigint[])))),
seen AS (
    SELECT found.*,
           NOT waits AND (behind IS NOT NULL OR parked IS NOT NULL OR coalesce(next_attempt_at > now(), FALSE))
               AS blocked
    FROM found)
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version,
       CASE WHEN blocked THEN '' ELSE payload END AS payload,
       CASE WHEN blocked THEN NULL ELSE headers END AS headers,
       destination, msg_key, lane, created_at, status, attempts, next_attempt_at, dispatched_at, job_id,
       causation_id, correlation_id, error_code, error_message, lost_workers, waits, blocked, behind
FROM (SELECT seen.*,
             count(*) FILTER (WHERE NOT blocked) OVER prefix AS place,
             sum(octet_length(payload)) FILTER (WHERE NOT blocked) OVER prefix - octet_length(payload)
                 AS bytes_before
      FROM seen
      WINDOW prefix AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS sized
WHERE blocked OR (place <= $4 AND ($7::bigint IS NULL OR bytes_before < $7))
ORDER BY id
