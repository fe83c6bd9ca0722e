-- Moves with every decision of a person, because each draws an id of the audit. Moves before the
-- decision commits.
SELECT last_value + is_called::integer FROM relais_audit_id_seq
