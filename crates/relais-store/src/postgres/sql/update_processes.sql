-- Only those that are still at the version their changes were made from ($2).
UPDATE relais_process AS p
SET status = c.status, current_step = c.current_step, data = c.data, retries = c.retries,
    progress = c.progress, version = c.version, updated_at = clock_timestamp()
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
            $8::bigint[])
     AS c (process_id, from_version, status, current_step, data, retries, progress, version)
WHERE p.process_id = c.process_id AND p.version = c.from_version
