-- Counted before the work, so that a message which kills its worker runs out of attempts.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_outbox AS o SET attempts = o.attempts + 1
FROM unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE o.id = s.id AND o.lane = s.lane AND o.destination = $3 AND o.status = 'PENDING'
