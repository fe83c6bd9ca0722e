-- Not tried: goes again as it was. Locks the table before announce_bulk: see low_water_mark.rs. IS NOT DISTINCT
-- FROM keeps the planner from reading all rows of the job for each part of it.
UPDATE relais_outbox AS o SET job_id = NULL, next_attempt_at = NULL, lost_workers = 0
FROM unnest($2::bigint[]) AS s (id)
WHERE o.id = s.id AND o.job_id IS NOT DISTINCT FROM $1 AND o.status = 'PENDING'
