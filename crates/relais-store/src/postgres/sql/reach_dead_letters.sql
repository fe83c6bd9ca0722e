-- The last of the $3 dead letters that a page looks at, open or all, and whether it is recent enough for
-- others behind it. None if there are fewer. Sent with its values each time.
SELECT id, $4::bigint IS NULL OR parked_at >= now() - $4 * INTERVAL '1 second'
FROM relais_dead_letter
WHERE ($1::text IS NULL OR $1 <> 'open' OR resolved_at IS NULL)
  AND ($2::uuid IS NULL
       OR (parked_at, id) < ((SELECT b.parked_at FROM relais_dead_letter AS b WHERE b.id = $2), $2))
ORDER BY parked_at DESC, id DESC
OFFSET $3 - 1 LIMIT 1
