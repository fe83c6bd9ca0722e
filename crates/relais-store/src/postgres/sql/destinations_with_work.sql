-- Destinations with a fresh row above their mark, or with a row whose time has come. Two look-ups for each,
-- of one row each, whatever the statistics say: see fetch_outbox.
SELECT d.destination
FROM unnest($1::text[], $2::bigint[]) AS d (destination, mark)
WHERE (SELECT f.id
       FROM relais_outbox AS f
       WHERE (f.destination, f.id)
             > (d.destination, greatest(d.mark, (SELECT p.position FROM relais_outbox_position AS p
                                                 WHERE p.destination = d.destination)))
         AND f.destination <= d.destination AND f.status = 'PENDING'
         AND (SELECT w.id FROM relais_waiting AS w WHERE w.id = f.id LIMIT 1) IS NULL
       ORDER BY f.destination, f.id
       LIMIT 1) IS NOT NULL
   OR (SELECT w.id
       FROM relais_waiting AS w
       WHERE w.destination = d.destination AND w.due_at <= now()
       ORDER BY w.due_at
       LIMIT 1) IS NOT NULL
