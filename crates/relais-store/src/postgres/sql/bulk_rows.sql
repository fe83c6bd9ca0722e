-- The rows end where their payloads have $4 bytes, with the row that reaches them; `octet_length` reads
-- no payload. Without $4 the rows come without payloads.
SELECT page.*
FROM (SELECT open.*,
             sum(octet_length(payload)) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING)
                 - octet_length(payload) AS bytes_before
      FROM (SELECT id, message_id, category, aggregate_type, aggregate_id, event_type, event_version,
                   CASE WHEN $4::bigint IS NOT NULL THEN payload ELSE '' END AS payload,
                   headers, destination, msg_key, lane, created_at, status, attempts,
                   next_attempt_at, dispatched_at, job_id, causation_id, correlation_id, error_code,
                   error_message, lost_workers, id + 0 AS place
            FROM relais_outbox
            WHERE job_id = $1 AND status = 'PENDING' AND id + 0 > $2
            ORDER BY id + 0
            LIMIT $3) AS open) AS page
WHERE $4::bigint IS NULL OR bytes_before < $4
ORDER BY place
