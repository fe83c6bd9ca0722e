-- Noted before the work on rows that may have been in flight when their last worker was lost: taken back
-- when the work ends, whatever comes of it.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($5::smallint[])
    ORDER BY lane
    FOR SHARE)
UPDATE relais_outbox AS o SET lost_workers = least(o.lost_workers + 1, 100)
FROM unnest($4::bigint[], $5::smallint[], $6::bigint[]) AS s (id, lane, epoch)
JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch
WHERE o.id = s.id AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = s.lane
  AND o.destination = $3 AND o.status = 'PENDING'
