-- Fresh rows in order of their ids, from the mark on, and rows whose time has come.
--
-- A row that waits for a time is in the way of later rows of its key: a fresh row waits for any of
-- them, a due row for those that are not due.
-- A due row brings along the earlier due rows of its key, so that the limit cannot turn them
-- round.
--
-- Written so that no statistics can make the planner read much: `id + 0` and the hash are in one
-- index only, a scalar sub-select with LIMIT 1 stays one look-up, and NOT EXISTS guards save the
-- look-ups while there is no trouble at all.
--
-- The rows end where their payloads have $6 bytes, with the row that reaches them: a prefix in id order,
-- never empty. `octet_length` reads no payload.
WITH due AS MATERIALIZED (
    SELECT i.id, i.msg_key
    FROM relais_inbox AS i
    WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at <= now()
      AND i.lane = ANY ($1::smallint[]) AND i.inbox = $7
      AND i.msg_key NOT IN (SELECT unnest($4::text[]) COLLATE "C")
      AND i.id NOT IN (SELECT unnest($5::bigint[]))
      AND (SELECT e.id
           FROM relais_inbox AS e
           WHERE hashtextextended(e.msg_key, 0) = hashtextextended(i.msg_key, 0)
             AND e.msg_key = i.msg_key AND e.inbox = i.inbox AND e.id + 0 < i.id
             AND e.status IN ('RECEIVED', 'RETRY') AND e.next_attempt_at > now()
           ORDER BY e.id + 0
           LIMIT 1) IS NULL
      AND (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'inbox' AND p.destination = $7 AND p.key_hash = md5(i.msg_key)
           LIMIT 1) IS NULL
    ORDER BY i.next_attempt_at
    LIMIT $3),
chosen AS (
    SELECT id FROM due
    UNION
    SELECT earlier.id
    FROM (SELECT msg_key, max(id) AS id FROM due GROUP BY msg_key) AS last
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM relais_inbox AS e
        WHERE hashtextextended(e.msg_key, 0) = hashtextextended(last.msg_key, 0)
          AND e.msg_key = last.msg_key AND e.inbox = $7 AND e.id + 0 < last.id
          AND e.status IN ('RECEIVED', 'RETRY') AND e.next_attempt_at IS NOT NULL
        ORDER BY e.id + 0
        LIMIT $3) AS earlier),
found AS (
(SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str,
        i.msg_key, i.lane, i.aggregate_id, i.event_type, i.payload, i.headers, i.raw_payload_base64,
        i.event_ts, i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at,
        i.error_stage, i.error_code, i.error_message, i.lost_workers, i.unknown_since
 FROM relais_inbox AS i
 WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL AND i.id + 0 > $2
   AND i.lane = ANY ($1::smallint[]) AND i.inbox = $7
   AND i.msg_key NOT IN (SELECT unnest($4::text[]) COLLATE "C")
   AND i.id NOT IN (SELECT unnest($5::bigint[]))
   AND (NOT EXISTS (
            SELECT FROM relais_inbox AS e
            WHERE e.status IN ('RECEIVED', 'RETRY') AND e.next_attempt_at IS NOT NULL)
        OR (SELECT e.id
            FROM relais_inbox AS e
            WHERE hashtextextended(e.msg_key, 0) = hashtextextended(i.msg_key, 0)
              AND e.msg_key = i.msg_key AND e.inbox = i.inbox AND e.id + 0 < i.id
              AND e.status IN ('RECEIVED', 'RETRY') AND e.next_attempt_at IS NOT NULL
            ORDER BY e.id + 0
            LIMIT 1) IS NULL)
   AND (NOT EXISTS (
            SELECT FROM relais_parked_key AS p WHERE p.origin = 'inbox' AND p.destination = $7)
        OR (SELECT p.key_hash
            FROM relais_parked_key AS p
            WHERE p.origin = 'inbox' AND p.destination = $7 AND p.key_hash = md5(i.msg_key)
            LIMIT 1) IS NULL)
 ORDER BY i.id + 0
 LIMIT $3)
UNION ALL
(SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str,
        i.msg_key, i.lane, i.aggregate_id, i.event_type, i.payload, i.headers, i.raw_payload_base64,
        i.event_ts, i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at,
        i.error_stage, i.error_code, i.error_message, i.lost_workers, i.unknown_since
 FROM chosen
 JOIN relais_inbox AS i ON i.id = chosen.id
 WHERE i.id NOT IN (SELECT unnest($5::bigint[])))
ORDER BY id
LIMIT $3),
sized AS (
    SELECT found.*,
           coalesce(octet_length(payload), 0) + coalesce(octet_length(raw_payload_base64), 0) AS bytes
    FROM found)
SELECT summed.*
FROM (SELECT sized.*,
             sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
      FROM sized) AS summed
WHERE bytes_before < $6
ORDER BY id
