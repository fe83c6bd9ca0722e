-- Repairs what was changed by hand, a page of $2 waiting rows behind $1 at a time: a row that is not pending any more
-- leaves, and one without an obstacle becomes due. A fetch checks again what is in its way. Returns how many it
-- read, the last of them, and the keys of rows that left.
WITH page AS MATERIALIZED (
    SELECT w.id, w.destination, w.msg_key, w.due_at IS NULL AND w.job_id IS NULL AS behind
    FROM relais_waiting AS w
    WHERE w.id > $1
    ORDER BY w.id
    LIMIT $2),
gone AS (
    DELETE FROM relais_waiting AS w
    WHERE w.id = ANY (ARRAY(
        SELECT p.id FROM page AS p
        WHERE (SELECT o.id FROM relais_outbox AS o
               WHERE o.id = p.id AND o.status = 'PENDING'
               LIMIT 1) IS NULL))
    RETURNING w.destination, w.msg_key),
freed AS (
    UPDATE relais_waiting AS w SET due_at = clock_timestamp()
    WHERE w.due_at IS NULL AND w.job_id IS NULL AND w.id = ANY (ARRAY(
        SELECT p.id FROM page AS p
        WHERE p.behind
          AND (SELECT e.id
               FROM relais_waiting AS e
               WHERE e.destination = p.destination
                 AND hashtextextended(e.msg_key, 0) = hashtextextended(p.msg_key, 0)
                 AND e.msg_key = p.msg_key AND e.id + 0 < p.id AND e.holds_key
               ORDER BY e.id + 0
               LIMIT 1) IS NULL
          AND (SELECT k.key_hash
               FROM relais_parked_key AS k
               WHERE k.origin = 'outbox' AND k.destination = p.destination AND k.key_hash = md5(p.msg_key)
               LIMIT 1) IS NULL)))
SELECT (SELECT count(*) FROM page), (SELECT max(id) FROM page),
       ARRAY(SELECT DISTINCT destination FROM gone), ARRAY(SELECT DISTINCT msg_key FROM gone)
