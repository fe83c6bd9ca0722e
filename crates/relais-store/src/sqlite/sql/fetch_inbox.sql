-- Differs from postgres: the lanes come as the bits of one integer, because SQLite has no arrays.
-- Fresh rows walk their partial index in order; rows whose time has come walk theirs. Both wait for
-- an earlier row of their key that waits: of several that are due, the first goes first and alone.
-- The guards before the look-ups save these while there is no trouble.
-- The rows end where their payloads have ?6 bytes, with the row that reaches them: a prefix in id order,
-- never empty. `octet_length` reads no payload, and the payloads are read only after the cut.
-- Fresh rows up to ?7 wait behind parked keys.
WITH open (id) AS (
    SELECT id FROM (
        SELECT f.id FROM relais_inbox AS f INDEXED BY relais_inbox_fresh
        WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
          AND f.id > ?7 AND (?1 >> f.lane) & 1 AND f.inbox = ?5
          AND (?3 = '[]' OR f.msg_key NOT IN (SELECT value FROM json_each(?3)))
          AND (?4 = '[]' OR f.id NOT IN (SELECT value FROM json_each(?4)))
          AND (NOT EXISTS (SELECT 1 FROM relais_inbox AS h INDEXED BY relais_inbox_held
                           WHERE h.status IN ('RECEIVED', 'RETRY')
                             AND h.next_attempt_at IS NOT NULL)
               OR NOT EXISTS (SELECT 1 FROM relais_inbox AS h
                              WHERE h.msg_key = f.msg_key AND h.inbox = ?5 AND h.id < f.id
                                AND h.status IN ('RECEIVED', 'RETRY')
                                AND h.next_attempt_at IS NOT NULL))
          AND (NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                           WHERE p.origin = 'inbox' AND p.destination = ?5)
               OR NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                              WHERE p.origin = 'inbox' AND p.destination = ?5
                                AND p.msg_key = f.msg_key))
        ORDER BY f.id
        LIMIT ?2)
    UNION ALL
    SELECT id FROM (
        SELECT w.id FROM relais_inbox AS w INDEXED BY relais_inbox_due
        WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
          AND w.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
          AND (?1 >> w.lane) & 1 AND w.inbox = ?5
          AND w.msg_key NOT IN (SELECT value FROM json_each(?3))
          AND w.id NOT IN (SELECT value FROM json_each(?4))
          AND NOT EXISTS (SELECT 1 FROM relais_inbox AS h
                          WHERE h.msg_key = w.msg_key AND h.inbox = ?5 AND h.id < w.id
                            AND h.status IN ('RECEIVED', 'RETRY') AND h.next_attempt_at IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM relais_parked_key AS p
                          WHERE p.origin = 'inbox' AND p.destination = ?5 AND p.msg_key = w.msg_key)
        ORDER BY w.next_attempt_at, w.id
        LIMIT ?2)),
found AS (
    SELECT s.id,
           coalesce(octet_length(s.payload), 0) + coalesce(octet_length(s.raw_payload_base64), 0) AS bytes
    FROM relais_inbox AS s
    WHERE s.id IN (SELECT id FROM open)),
summed AS (
    SELECT id, sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before FROM found)
SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key,
       i.lane, i.aggregate_id, i.event_type, i.payload, i.headers, i.raw_payload_base64, i.event_ts,
       i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at, i.error_stage,
       i.error_code, i.error_message, i.lost_workers, i.unknown_since
FROM relais_inbox AS i
WHERE i.id IN (SELECT id FROM summed WHERE bytes_before < ?6)
ORDER BY i.id
LIMIT ?2
