-- One lease for each worker, instead of one for each lane and scope: a heartbeat changes one row, however
-- many destinations there are.

-- A worker: one run of one process. It owns its lanes in all scopes until its lease expires.
CREATE TABLE relais_lease (
    worker      text COLLATE "C" PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    -- Rises when the lease had expired before it was renewed: its lanes may have another owner since.
    term        bigint NOT NULL,
    -- Counts announced and left scopes, and lanes that were handed over; what other workers notice.
    moves       bigint NOT NULL DEFAULT 0,
    handed_over bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- A process of the version before cannot renew its leases any more. It owns its lanes until they expire.
INSERT INTO relais_lease (worker, lease_until, term)
SELECT owner, coalesce(max(lease_until), clock_timestamp()), 0
FROM relais_lane
WHERE owner IS NOT NULL
GROUP BY owner;

-- A lane names its owner; the owner's lease counts.
ALTER TABLE relais_lane DROP COLUMN lease_until;
-- The scopes that a worker serves, and the event types that it knows.
ALTER TABLE relais_worker DROP COLUMN seen_until, DROP COLUMN handed_over;
