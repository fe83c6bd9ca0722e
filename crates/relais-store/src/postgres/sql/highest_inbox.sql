-- Whether a key is parked, and then the highest fresh row above the mark: no fetch returns rows of parked
-- keys, so the mark needs it to get past them.
SELECT EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'inbox' AND p.destination = $3),
       CASE WHEN EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'inbox' AND p.destination = $3)
       THEN (SELECT i.id
             FROM relais_inbox AS i
             WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL
               AND i.id + 0 > $2 AND i.lane = ANY ($1::smallint[]) AND i.inbox = $3
             ORDER BY i.id + 0 DESC
             LIMIT 1)
       END
