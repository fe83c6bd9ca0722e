-- Locks the processes in order and gives back the rows ($1) whose processes are not as their changes
-- found them: at another version, not there, or there although it should be new, or with a business key
-- that is taken. No other transaction changes the others before this one ends.
WITH held AS MATERIALIZED (
    SELECT process_id, version FROM relais_process
    WHERE process_id = ANY ($2::uuid[])
    ORDER BY process_id
    FOR UPDATE)
SELECT c.id
FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
     AS c (id, process_id, version, process_type, business_key)
LEFT JOIN held ON held.process_id = c.process_id
WHERE coalesce(held.version, 0) <> c.version
   OR (c.version = 0
       AND (SELECT p.process_id FROM relais_process AS p
            WHERE md5(p.business_key)::uuid = md5(c.business_key)::uuid
              AND p.business_key = c.business_key AND p.process_type = c.process_type
            LIMIT 1) IS NOT NULL)
