-- One lease for each worker, instead of one for each lane and scope: a heartbeat changes one row, however
-- many destinations there are.

-- A worker: one run of one process. It owns its lanes in all scopes until its lease expires.
CREATE TABLE relais_lease (
    worker      TEXT NOT NULL PRIMARY KEY,
    lease_until TEXT NOT NULL,
    -- Rises when the lease had expired before it was renewed: its lanes may have another owner since.
    term        INTEGER NOT NULL,
    -- Counts announced and left scopes, and lanes that were handed over; what other workers notice.
    moves       INTEGER NOT NULL DEFAULT 0,
    handed_over INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A process of the version before cannot renew its leases any more. It owns its lanes until they expire.
INSERT INTO relais_lease (worker, lease_until, term)
SELECT owner, coalesce(max(lease_until), strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), 0
FROM relais_lane
WHERE owner IS NOT NULL
GROUP BY owner;

-- A lane names its owner; the owner's lease counts.
ALTER TABLE relais_lane DROP COLUMN lease_until;
-- The scopes that a worker serves, and the event types that it knows.
ALTER TABLE relais_worker DROP COLUMN seen_until;
ALTER TABLE relais_worker DROP COLUMN handed_over;
