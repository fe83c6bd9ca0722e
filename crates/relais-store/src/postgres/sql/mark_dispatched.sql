-- The whole settlement of a batch that went well, in one statement and one round trip. The lanes'
-- rows are locked in order and compared after the lock, so a take-over comes before or after, never
-- between. Not a join: one array of ids is looked up in one walk along the index. Returns how many rows were
-- settled, and the keys of those that waited.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE),
settled AS (
    UPDATE relais_outbox AS o
    SET msg_key = coalesce(o.msg_key, o.aggregate_id COLLATE "C"),
        status = 'DISPATCHED', attempts = o.attempts + 1, next_attempt_at = NULL,
        dispatched_at = clock_timestamp(), error_code = NULL, error_message = NULL
    WHERE o.id = ANY (ARRAY(
              SELECT s.id
              FROM unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
              JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch))
      AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = ANY (ARRAY(SELECT lane FROM fence))
      AND o.destination = $3 AND o.status = 'PENDING'
    RETURNING o.id),
gone AS (
    DELETE FROM relais_waiting AS w
    WHERE EXISTS (SELECT FROM relais_waiting WHERE destination = $3)
      AND w.id = ANY (ARRAY(SELECT id FROM settled))
    RETURNING w.msg_key)
SELECT (SELECT count(*) FROM settled), ARRAY(SELECT DISTINCT msg_key FROM gone)
