-- Ids drawn so far: moves with every new inbox row and with every decision of an operator, through the
-- audit, and with every bulk job that sets rows free or ends. The second number leaves out inbox rows. The
-- third is the highest outbox id. And the workers there are, and how many times they handed lanes over: few
-- rows.
WITH decided (moves) AS (
    SELECT (SELECT last_value + is_called::integer FROM relais_audit_id_seq)
           + (SELECT last_value + is_called::integer FROM relais_bulk_job_moved_seq))
SELECT decided.moves + (SELECT last_value + is_called::integer FROM relais_inbox_id_seq),
       decided.moves,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM relais_outbox_id_seq),
       (SELECT count(*) FROM relais_worker),
       (SELECT coalesce(sum(handed_over), 0)::bigint FROM relais_worker)
FROM decided
