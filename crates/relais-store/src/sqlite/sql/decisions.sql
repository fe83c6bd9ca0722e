-- Whether keys of the scope are parked, and a number that moves with every decision of an operator, because
-- each draws an id of the audit, and when a bulk job sets rows free.
SELECT EXISTS (SELECT 1 FROM relais_parked_key WHERE origin = ?1 AND destination = ?2),
       (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'relais_audit')
       + (SELECT coalesce(max(moved), 0) FROM relais_bulk_job)
