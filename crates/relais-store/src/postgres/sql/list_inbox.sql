-- Sent with its values each time, so that the planner sees which filters are set. Rows that wait are found
-- by their own indexes while there are no more than $12 of them; else among the newest.
WITH few (yes) AS MATERIALIZED (
    SELECT $1::text IS NOT DISTINCT FROM 'RECEIVED'
           AND (SELECT count(*) <= $12 FROM (
                    SELECT FROM relais_inbox
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                    LIMIT $12 + 1) AS fresh)
           AND (SELECT count(*) <= $12 FROM (
                    SELECT FROM relais_inbox
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
                    LIMIT $12 + 1) AS later)),
page (id) AS (
    (SELECT id FROM relais_inbox
     WHERE (SELECT yes FROM few) AND status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR received_at >= now() - $4 * INTERVAL '1 second')
       AND ($8::text IS NULL OR source_system = $8)
       AND ($9::text IS NULL OR error_code = $9)
       AND id + 0 < coalesce($5::bigint, 9223372036854775807) AND id + 0 >= coalesce($11::bigint, 0)
     ORDER BY id + 0 DESC
     LIMIT $6)
    UNION ALL
    (SELECT id FROM relais_inbox
     WHERE (SELECT yes FROM few) AND status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR received_at >= now() - $4 * INTERVAL '1 second')
       AND ($8::text IS NULL OR source_system = $8)
       AND ($9::text IS NULL OR error_code = $9)
       AND id + 0 < coalesce($5::bigint, 9223372036854775807) AND id + 0 >= coalesce($11::bigint, 0)
     ORDER BY id + 0 DESC
     LIMIT $6)
    UNION ALL
    (SELECT id FROM relais_inbox
     WHERE NOT (SELECT yes FROM few)
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR received_at >= now() - $4 * INTERVAL '1 second')
       AND ($8::text IS NULL OR source_system = $8)
       AND ($9::text IS NULL OR error_code = $9)
       AND id < coalesce($5::bigint, 9223372036854775807) AND id >= coalesce($11::bigint, 0)
     ORDER BY id DESC
     LIMIT $6))
SELECT i.id, i.message_id, i.source_system, i.topic, i.partition_num, i.offset_num, i.key_str, i.msg_key, i.lane,
       i.aggregate_id, i.event_type,
       CASE WHEN $10::int IS NULL THEN i.payload ELSE left(i.payload, $10) END AS payload, i.headers,
       CASE WHEN $10::int IS NULL THEN i.raw_payload_base64 ELSE left(i.raw_payload_base64, $10) END
           AS raw_payload_base64,
       i.event_ts, i.received_at, i.status, i.attempts, i.next_attempt_at, i.processed_at, i.error_stage,
       i.error_code, i.error_message, i.lost_workers, i.unknown_since,
       coalesce(octet_length(i.payload), octet_length(rtrim(i.raw_payload_base64, '=')) * 3 / 4)
           AS payload_bytes
FROM (SELECT id FROM page ORDER BY id DESC LIMIT $6) AS p
JOIN relais_inbox AS i ON i.id = p.id
ORDER BY i.id DESC
