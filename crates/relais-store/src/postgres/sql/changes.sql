-- Ids drawn so far: moves with every new row and, through the audit, with every decision of a
-- person. Reads three one-row relations.
SELECT (SELECT last_value + is_called::integer FROM relais_inbox_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_outbox_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_audit_id_seq)
