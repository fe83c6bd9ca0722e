-- Moves with every decision of an operator, because each draws an id of the audit, and when a bulk job sets
-- rows free. Moves before these commit.
SELECT (SELECT last_value + is_called::integer FROM relais_audit_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_bulk_job_moved_seq)
