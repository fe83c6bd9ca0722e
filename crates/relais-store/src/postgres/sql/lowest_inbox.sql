-- The lowest fresh row above the mark whose key is not parked, whether it may go now or not: the mark must
-- not pass it. Rows of parked keys become open again only by a decision that resets the mark.
SELECT i.id
FROM relais_inbox AS i
WHERE i.status IN ('RECEIVED', 'RETRY') AND i.next_attempt_at IS NULL
  AND i.id + 0 > $2 AND i.lane = ANY ($1::smallint[]) AND i.inbox = $3
  AND (NOT EXISTS (
           SELECT FROM relais_parked_key AS p WHERE p.origin = 'inbox' AND p.destination = $3)
       OR (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'inbox' AND p.destination = $3 AND p.key_hash = md5(i.msg_key)
           LIMIT 1) IS NULL)
ORDER BY i.id + 0
LIMIT 1
