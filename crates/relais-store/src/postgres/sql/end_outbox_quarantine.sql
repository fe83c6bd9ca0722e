-- Another worker was lost while these rows were held: they were not the reason. Rows that have more than $7
-- milliseconds to wait were held after the loss of this very worker: see bulk/drive.rs.
WITH fence AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($4::smallint[])
    ORDER BY lane
    FOR SHARE),
freed AS (
    UPDATE relais_outbox AS o
    SET lost_workers = $6, next_attempt_at = least(o.next_attempt_at, clock_timestamp())
    FROM relais_waiting AS w
    WHERE w.destination = $3 AND w.due_at <= clock_timestamp() + $7::bigint * INTERVAL '1 millisecond'
      AND (hashtext(w.msg_key) & 63) IN (SELECT lane FROM fence)
      AND o.id = w.id AND o.status = 'PENDING' AND o.job_id IS NULL AND o.lost_workers = $5
    RETURNING o.id)
UPDATE relais_waiting AS w SET due_at = least(w.due_at, clock_timestamp())
WHERE w.id = ANY (ARRAY(SELECT id FROM freed))
