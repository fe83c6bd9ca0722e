-- Destinations with a fresh row above their mark, or with a row whose time has come. Two look-ups for each,
-- of one row each, whatever the statistics say: see fetch_outbox.
SELECT d.destination
FROM unnest($1::text[], $2::bigint[]) AS d (destination, mark)
WHERE (SELECT f.id
       FROM relais_outbox AS f
       WHERE f.destination = d.destination AND f.status = 'PENDING' AND f.next_attempt_at IS NULL
         AND f.id + 0 > d.mark
       ORDER BY f.id + 0
       LIMIT 1) IS NOT NULL
   OR (SELECT w.id
       FROM relais_outbox AS w
       WHERE w.destination = d.destination AND w.status = 'PENDING' AND w.next_attempt_at <= now()
       ORDER BY w.next_attempt_at
       LIMIT 1) IS NOT NULL
