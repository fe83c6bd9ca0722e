-- The rows end where their payloads have $4 bytes, with the row that reaches them; `octet_length` reads
-- no payload. Without $4 the rows come without payloads.
SELECT page.*
FROM (SELECT open.*,
             sum(octet_length(payload)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)
                 - octet_length(payload) AS bytes_before
      FROM (SELECT o.id, o.message_id, o.category, o.aggregate_type, o.aggregate_id, o.event_type,
                   o.event_version, CASE WHEN $4::bigint IS NOT NULL THEN o.payload ELSE '' END AS payload,
                   o.headers, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key,
                   (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63)::smallint AS lane,
                   o.created_at, o.status, o.attempts, o.next_attempt_at, o.dispatched_at, o.job_id,
                   o.causation_id, o.correlation_id, o.error_code, o.error_message, o.lost_workers
            FROM (SELECT id FROM relais_waiting
                  WHERE job_id = $1 AND id + 0 > $2
                  ORDER BY id + 0
                  LIMIT $3) AS w
            JOIN relais_outbox AS o ON o.id = w.id
            WHERE o.status = 'PENDING') AS open) AS page
WHERE $4::bigint IS NULL OR bytes_before < $4
ORDER BY id
