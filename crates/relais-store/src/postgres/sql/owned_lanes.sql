-- Lanes that no other worker took stay with their owner, also after its lease has expired. Without a lock:
-- renew_lease holds the row of the lease, and only a transaction that locks that row takes its lanes.
SELECT lane, epoch FROM relais_lane WHERE scope = $1 AND owner = $2 ORDER BY lane
