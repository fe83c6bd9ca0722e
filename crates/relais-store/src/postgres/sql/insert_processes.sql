-- One that is there already, or whose business key is taken, is an error: the caller runs again and sees
-- it. In order, so that two who begin the same ones cannot deadlock.
INSERT INTO relais_process (process_id, process_type, definition, business_key, status, current_step,
                            data, retries, progress, version, key_hold)
SELECT process_id, process_type, definition, business_key, status, current_step, data, retries,
       progress, version, key_hold
FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::integer[], $9::text[], $10::bigint[], $11::text[])
     AS c (process_id, process_type, definition, business_key, status, current_step, data, retries,
           progress, version, key_hold)
ORDER BY process_id
