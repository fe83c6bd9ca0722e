-- Ids drawn so far: moves with every new inbox row and with every decision of an operator, through the
-- audit, and with every bulk job that sets rows free or ends, but not with a heartbeat or a settlement. The
-- second number leaves out inbox rows. The third is the highest outbox id. The fourth moves when a
-- worker comes, leaves or is lost, and when the clock is set back; the fifth when lanes are handed over.
-- Differs from postgres: the sequences are rows of one small table.
WITH decided (moves) AS (
    SELECT (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'relais_audit')
           + (SELECT coalesce(max(moved), 0) FROM relais_bulk_job))
SELECT decided.moves + (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'relais_inbox'),
       decided.moves,
       (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'relais_outbox'),
       (SELECT coalesce(sum(term + moves) FILTER (WHERE lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), 0)
               + count(*) FILTER (WHERE lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '3600 seconds'))
        FROM relais_lease),
       (SELECT coalesce(sum(handed_over), 0) FROM relais_lease)
FROM decided
