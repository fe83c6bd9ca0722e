-- Given back for a worker that knows an event type, in one transaction with count_hand_over.
WITH mine AS MATERIALIZED (
    SELECT lane FROM relais_lane
    WHERE scope = $1 AND owner = $2 AND lane = ANY ($3::smallint[])
    ORDER BY lane
    FOR UPDATE)
UPDATE relais_lane AS l
SET owner = NULL, wanted_type = h.event_type, unclean = h.unclean
FROM mine
JOIN unnest($3::smallint[], $4::text[], $5::boolean[]) AS h (lane, event_type, unclean)
  ON h.lane = mine.lane
WHERE l.scope = $1 AND l.lane = mine.lane
