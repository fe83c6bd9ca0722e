-- By ids, and by types and keys; each with the place at which it was asked for. LIMIT 1 keeps one look-up
-- for each, whatever the planner believes.
SELECT p.process_id, p.process_type, p.definition, p.business_key, p.status, p.current_step, p.data,
       p.retries, p.progress, p.version, p.created_at, p.updated_at, w.place
FROM unnest($1::uuid[], $2::bigint[]) AS w (process_id, place)
CROSS JOIN LATERAL (
    SELECT * FROM relais_process AS r WHERE r.process_id = w.process_id LIMIT 1) AS p
UNION ALL
SELECT p.process_id, p.process_type, p.definition, p.business_key, p.status, p.current_step, p.data,
       p.retries, p.progress, p.version, p.created_at, p.updated_at, w.place
FROM unnest($3::text[], $4::text[], $5::bigint[]) AS w (process_type, business_key, place)
CROSS JOIN LATERAL (
    SELECT * FROM relais_process AS r
    WHERE md5(r.business_key)::uuid = md5(w.business_key)::uuid AND r.business_key = w.business_key
      AND r.process_type = w.process_type
    LIMIT 1) AS p
