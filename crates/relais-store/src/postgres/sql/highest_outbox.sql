-- Whether a key is parked, and then the highest fresh row above the mark: no fetch returns rows of parked
-- keys, so the mark needs it to get past them.
SELECT EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'outbox' AND p.destination = $1),
       CASE WHEN EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'outbox' AND p.destination = $1)
       THEN (SELECT o.id
             FROM relais_outbox AS o
             WHERE o.destination = $1 AND o.status = 'PENDING' AND o.next_attempt_at IS NULL
               AND o.id + 0 > $3 AND o.lane = ANY ($2::smallint[])
             ORDER BY o.id + 0 DESC
             LIMIT 1)
       END
