-- By ids, and by types and keys; each with the place at which it was asked for. LIMIT 1 keeps one look-up
-- for each, whatever the planner believes. Of a key that was released, the process that holds it comes first,
-- else the newest; OFFSET 0 keeps the planner from walking all processes of the type in their order.
SELECT p.process_id, p.process_type, p.definition, coalesce(p.business_key, p.released_key) AS business_key,
       p.status, p.current_step, p.data, p.retries, p.progress, p.version, p.created_at, p.updated_at,
       p.key_hold, w.place
FROM unnest($1::uuid[], $2::bigint[]) AS w (process_id, place)
CROSS JOIN LATERAL (
    SELECT * FROM relais_process AS r WHERE r.process_id = w.process_id LIMIT 1) AS p
UNION ALL
SELECT p.process_id, p.process_type, p.definition, coalesce(p.business_key, p.released_key), p.status,
       p.current_step, p.data, p.retries, p.progress, p.version, p.created_at, p.updated_at, p.key_hold, w.place
FROM unnest($3::text[], $4::text[], $5::bigint[]) AS w (process_type, business_key, place)
CROSS JOIN LATERAL (
    (SELECT 0 AS rank, h.* FROM relais_process AS h
     WHERE md5(h.business_key)::uuid = md5(w.business_key)::uuid AND h.business_key = w.business_key
       AND h.process_type = w.process_type
     LIMIT 1)
    UNION ALL
    (SELECT 1 AS rank, f.* FROM (
         SELECT * FROM relais_process AS r
         WHERE md5(r.released_key)::uuid = md5(w.business_key)::uuid AND r.released_key = w.business_key
           AND r.process_type = w.process_type
         OFFSET 0) AS f
     ORDER BY f.created_at DESC, f.process_id DESC
     LIMIT 1)
    ORDER BY rank
    LIMIT 1) AS p
