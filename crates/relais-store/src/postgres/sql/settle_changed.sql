-- As settle_processed, for a batch that changes processes. A row whose process is not as its change found
-- it stays as it was and comes back as stale: see lock_processes. One statement saves a round trip.
WITH held AS MATERIALIZED (
    SELECT process_id, version FROM relais_process
    WHERE process_id = ANY ($6::uuid[])
    ORDER BY process_id
    FOR UPDATE),
stale AS MATERIALIZED (
    SELECT DISTINCT c.id
    FROM unnest($5::bigint[], $6::uuid[], $7::bigint[], $8::text[], $9::text[])
         AS c (id, process_id, version, process_type, business_key)
    LEFT JOIN held ON held.process_id = c.process_id
    WHERE coalesce(held.version, 0) <> c.version
       OR (c.version = 0
           AND (SELECT p.process_id FROM relais_process AS p
                WHERE md5(p.business_key)::uuid = md5(c.business_key)::uuid
                  AND p.business_key = c.business_key AND p.process_type = c.process_type
                LIMIT 1) IS NOT NULL)),
fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $10 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE),
marked AS (
    UPDATE relais_inbox AS i
    SET status = 'PROCESSED', attempts = i.attempts + 1, next_attempt_at = NULL,
        processed_at = clock_timestamp(), error_stage = NULL, error_code = NULL, error_message = NULL
    FROM unnest($2::bigint[], $3::smallint[], $4::bigint[]) AS s (id, lane, epoch)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
    WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
      AND s.id NOT IN (SELECT id FROM stale)
    RETURNING i.id)
SELECT id, FALSE AS stale FROM marked
UNION ALL
SELECT id, TRUE FROM stale
