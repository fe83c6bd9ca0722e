INSERT INTO relais_process (process_id, process_type, definition, business_key, status, current_step,
                            data, retries, progress, version)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[],
                     $7::text[], $8::integer[], $9::text[], $10::bigint[])
