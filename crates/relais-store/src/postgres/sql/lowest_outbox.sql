-- The lowest fresh row above the mark, whether it may go now or not: the mark must not pass it.
SELECT o.id
FROM relais_outbox AS o
WHERE o.destination = $1 AND o.status = 'PENDING' AND o.next_attempt_at IS NULL
  AND o.id + 0 > $3 AND o.id + 0 <= $4 AND o.lane = ANY ($2::smallint[])
ORDER BY o.id + 0
LIMIT 1
