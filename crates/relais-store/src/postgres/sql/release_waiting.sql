-- The next rows behind something that is no longer in their way become due, at most $3 of each key. A statement
-- of its own after the change, so that it sees rows that were passed meanwhile. A fetch checks again what is in
-- their way, so a release is never wrong.
UPDATE relais_waiting AS w SET due_at = clock_timestamp()
FROM (SELECT next.id
      FROM unnest($2::text[]) AS k (msg_key)
      CROSS JOIN LATERAL (
          SELECT e.id, e.due_at, e.job_id
          FROM relais_waiting AS e
          WHERE e.destination = $1
            AND hashtextextended(e.msg_key, 0) = hashtextextended(k.msg_key COLLATE "C", 0)
            AND e.msg_key = k.msg_key
          ORDER BY e.id + 0
          LIMIT $3) AS next
      WHERE next.due_at IS NULL AND next.job_id IS NULL
        AND (SELECT p.key_hash
             FROM relais_parked_key AS p
             WHERE p.origin = 'outbox' AND p.destination = $1 AND p.key_hash = md5(k.msg_key)
             LIMIT 1) IS NULL) AS free
WHERE w.id = free.id AND w.due_at IS NULL AND w.job_id IS NULL
