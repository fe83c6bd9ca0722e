-- Sent with its values each time, so that the planner sees which filters are set. Rows that wait are found
-- by their own indexes while there are no more than $12 of them; else among the newest.
WITH few (yes) AS MATERIALIZED (
    SELECT $1::text IS NOT DISTINCT FROM 'PENDING'
           AND (SELECT count(*) <= $12 FROM (
                    SELECT FROM relais_outbox WHERE status = 'PENDING' AND next_attempt_at IS NULL
                    LIMIT $12 + 1) AS fresh)
           AND (SELECT count(*) <= $12 FROM (
                    SELECT FROM relais_outbox WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
                    LIMIT $12 + 1) AS later)),
page (id) AS (
    (SELECT id FROM relais_outbox
     WHERE (SELECT yes FROM few) AND status = 'PENDING' AND next_attempt_at IS NULL
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR destination = $7)
       AND ($9::text IS NULL OR error_code = $9)
       AND id + 0 < coalesce($5::bigint, 9223372036854775807) AND id + 0 >= coalesce($11::bigint, 0)
     ORDER BY id + 0 DESC
     LIMIT $6)
    UNION ALL
    (SELECT id FROM relais_outbox
     WHERE (SELECT yes FROM few) AND status = 'PENDING' AND next_attempt_at IS NOT NULL
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR destination = $7)
       AND ($9::text IS NULL OR error_code = $9)
       AND id + 0 < coalesce($5::bigint, 9223372036854775807) AND id + 0 >= coalesce($11::bigint, 0)
     ORDER BY id + 0 DESC
     LIMIT $6)
    UNION ALL
    (SELECT id FROM relais_outbox
     WHERE NOT (SELECT yes FROM few)
       AND ($1::text IS NULL OR status = $1)
       AND ($2::text IS NULL OR event_type = $2)
       AND ($3::text IS NULL OR msg_key = $3)
       AND ($4::bigint IS NULL OR created_at >= now() - $4 * INTERVAL '1 second')
       AND ($7::text IS NULL OR destination = $7)
       AND ($9::text IS NULL OR error_code = $9)
       AND id < coalesce($5::bigint, 9223372036854775807) AND id >= coalesce($11::bigint, 0)
     ORDER BY id DESC
     LIMIT $6))
SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version,
       CASE WHEN $10::int IS NULL THEN payload ELSE left(payload, $10) END AS payload,
       headers, destination, msg_key, lane, created_at, status, attempts, next_attempt_at,
       dispatched_at, job_id, causation_id, correlation_id, error_code, error_message, lost_workers,
       octet_length(payload) AS payload_bytes
FROM relais_outbox
WHERE id IN (SELECT id FROM page)
ORDER BY id DESC
LIMIT $6
