-- Ids drawn so far: moves with every new row and, through the audit, with every decision of an
-- operator, but not with a heartbeat or a settlement. What bulk jobs count up when they set rows free or
-- end. And the workers there are, and how many
-- times they handed lanes over: few rows.
-- Differs from postgres: the sequences are rows of one small table.
SELECT (SELECT coalesce(sum(seq), 0) FROM sqlite_sequence
        WHERE name IN ('relais_inbox', 'relais_outbox', 'relais_audit'))
       + (SELECT coalesce(max(moved), 0) FROM relais_bulk_job),
       (SELECT count(*) FROM relais_worker),
       (SELECT coalesce(sum(handed_over), 0) FROM relais_worker)
