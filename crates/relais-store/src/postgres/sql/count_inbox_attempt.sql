-- Counted before the work, so that a message which kills its worker runs out of attempts.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $5 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_inbox AS i SET attempts = i.attempts + 1
FROM unnest($2::bigint[], $3::smallint[], $4::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
