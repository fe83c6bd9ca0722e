-- The lowest fresh row above the mark whose key is not parked, whether it may go now or not: the mark must
-- not pass it. Rows of parked keys become open again only by a decision that resets the mark.
SELECT o.id
FROM relais_outbox AS o
WHERE o.destination = $1 AND o.status = 'PENDING' AND o.next_attempt_at IS NULL
  AND o.id + 0 > $3 AND o.lane = ANY ($2::smallint[])
  AND (NOT EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'outbox' AND p.destination = $1)
       OR (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'outbox' AND p.destination = $1 AND p.key_hash = md5(o.msg_key)
           LIMIT 1) IS NULL)
ORDER BY o.id + 0
LIMIT 1
