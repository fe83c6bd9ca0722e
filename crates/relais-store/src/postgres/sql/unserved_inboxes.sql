-- Open rows of named inboxes that no live worker serves, among the first $1 fresh and the first $1 waiting
-- rows. Only inboxes that had a worker are known here: their lanes stay. Usually there are none, and no row
-- is read.
WITH unserved AS MATERIALIZED (
    SELECT substr(l.scope, length('inbox:') + 1) AS inbox
    FROM relais_lane AS l
    WHERE l.lane = 0 AND l.scope LIKE 'inbox:%'
      AND NOT EXISTS (SELECT FROM relais_worker AS w
                      JOIN relais_lease AS s ON s.worker = w.worker
                      WHERE w.scope = l.scope AND s.lease_until > clock_timestamp()))
SELECT i.inbox, count(*)
FROM ((SELECT f.inbox FROM relais_inbox AS f
       WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
         AND EXISTS (SELECT FROM unserved)
       ORDER BY f.id + 0
       LIMIT $1)
      UNION ALL
      (SELECT w.inbox FROM relais_inbox AS w
       WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
         AND EXISTS (SELECT FROM unserved)
       ORDER BY w.next_attempt_at
       LIMIT $1)) AS i
WHERE i.inbox IN (SELECT inbox FROM unserved)
GROUP BY i.inbox
ORDER BY i.inbox
