-- From the owner of their lanes to the job: the rows wait until the job lets them go. Returns how many.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
never (at) AS (VALUES (TIMESTAMPTZ '9000-01-01 00:00:00Z')),
planned AS (
    UPDATE relais_outbox AS o SET job_id = $7, next_attempt_at = never.at
    FROM never
    CROSS JOIN unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE o.id = s.id AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = s.lane
      AND o.destination = $3 AND o.status = 'PENDING'
      AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
    RETURNING o.id, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key),
waits AS (
    INSERT INTO relais_waiting (id, destination, msg_key, holds_key, job_id)
    SELECT id, $3, msg_key, TRUE, $7 FROM planned
    ON CONFLICT (id) DO UPDATE SET due_at = NULL, holds_key = TRUE, job_id = excluded.job_id)
SELECT count(*) FROM planned
