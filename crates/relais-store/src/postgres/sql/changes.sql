-- Ids drawn so far: moves with every new inbox row and with every decision of an operator, through the
-- audit, and with every bulk job that sets rows free or ends. The second number leaves out inbox rows. The
-- third is the highest outbox id. The fourth moves when a worker comes, leaves or is lost, and when the clock
-- is set back; the fifth when lanes are handed over: few rows.
WITH decided (moves) AS (
    SELECT (SELECT last_value + is_called::integer FROM relais_audit_id_seq)
           + (SELECT last_value + is_called::integer FROM relais_bulk_job_moved_seq))
SELECT decided.moves + (SELECT last_value + is_called::integer FROM relais_inbox_id_seq),
       decided.moves,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM relais_outbox_id_seq),
       (SELECT coalesce(sum(term + moves) FILTER (WHERE lease_until > clock_timestamp()), 0)
               + count(*) FILTER (WHERE lease_until > clock_timestamp() + INTERVAL '1 hour')
        FROM relais_lease)::bigint,
       (SELECT coalesce(sum(handed_over), 0)::bigint FROM relais_lease)
FROM decided
