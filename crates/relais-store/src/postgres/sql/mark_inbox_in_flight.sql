-- Noted before the work on rows that may have been in flight when their last worker was lost: taken back
-- when the work ends, whatever comes of it.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $5 AND owner = $1 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_inbox AS i SET lost_workers = least(i.lost_workers + 1, 100)
FROM unnest($2::bigint[], $3::smallint[], $4::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE i.id = s.id AND i.lane = s.lane AND i.status IN ('RECEIVED', 'RETRY')
