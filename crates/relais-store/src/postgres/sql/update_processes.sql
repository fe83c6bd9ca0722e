-- A process that releases its business key keeps it in released_key.
-- Only those that are still at the version their changes were made from ($2).
UPDATE relais_process AS p
SET status = c.status, current_step = c.current_step, data = c.data, retries = c.retries,
    progress = c.progress, version = c.version, updated_at = clock_timestamp(), key_hold = c.key_hold,
    business_key = CASE WHEN c.key_hold <> 'RELEASED' THEN p.business_key END,
    released_key = CASE WHEN c.key_hold = 'RELEASED' THEN coalesce(p.business_key, p.released_key) END
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
            $8::bigint[], $9::text[])
     AS c (process_id, from_version, status, current_step, data, retries, progress, version, key_hold)
WHERE p.process_id = c.process_id AND p.version = c.from_version
