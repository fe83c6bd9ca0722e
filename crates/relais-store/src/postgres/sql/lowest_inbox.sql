-- The lowest fresh row above the mark, whether it may go now or not: the mark must not pass it.
SELECT i.id
FROM relais_inbox AS i
WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL
  AND i.id + 0 > $2 AND i.id + 0 <= $3 AND i.lane = ANY ($1::smallint[]) AND i.inbox = $4
ORDER BY i.id + 0
LIMIT 1
