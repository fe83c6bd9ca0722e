-- Ids drawn so far: moves with every new row and, through the audit, with every decision of an
-- operator and with every bulk job that sets rows free or ends. And the workers there are, and how many
-- times they handed lanes over: few rows.
SELECT (SELECT last_value + is_called::integer FROM relais_inbox_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_outbox_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_audit_id_seq)
       + (SELECT last_value + is_called::integer FROM relais_bulk_job_moved_seq),
       (SELECT count(*) FROM relais_worker),
       (SELECT coalesce(sum(handed_over), 0)::bigint FROM relais_worker)
