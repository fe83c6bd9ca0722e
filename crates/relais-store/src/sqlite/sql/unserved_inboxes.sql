-- Differs from postgres: times are text that sorts, and each part names its index.
WITH unserved (inbox) AS MATERIALIZED (
    SELECT substr(l.scope, length('inbox:') + 1)
    FROM relais_lane AS l
    WHERE l.lane = 0 AND l.scope >= 'inbox:' AND l.scope < 'inbox;'
      AND NOT EXISTS (SELECT 1 FROM relais_worker AS w
                      JOIN relais_lease AS s ON s.worker = w.worker
                      WHERE w.scope = l.scope AND s.lease_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
SELECT i.inbox, count(*)
FROM (SELECT inbox FROM (
          SELECT f.inbox FROM relais_inbox AS f INDEXED BY relais_inbox_fresh
          WHERE f.status IN ('RECEIVED', 'RETRY') AND f.next_attempt_at IS NULL
            AND (SELECT count(*) FROM unserved) > 0
          ORDER BY f.id
          LIMIT ?1)
      UNION ALL
      SELECT inbox FROM (
          SELECT w.inbox FROM relais_inbox AS w INDEXED BY relais_inbox_due
          WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
            AND (SELECT count(*) FROM unserved) > 0
          LIMIT ?1)) AS i
WHERE i.inbox IN (SELECT inbox FROM unserved)
GROUP BY i.inbox
ORDER BY i.inbox
