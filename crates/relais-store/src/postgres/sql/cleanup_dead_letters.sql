-- Resolved ones only. What was resolved that long ago was parked before, hence the index on age.
DELETE FROM relais_dead_letter
WHERE id IN (
    SELECT id FROM relais_dead_letter
    WHERE resolved_at < now() - $1::bigint * INTERVAL '1 second'
      AND parked_at < now() - $1::bigint * INTERVAL '1 second'
    ORDER BY parked_at, id
    LIMIT $2)
  AND resolved_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM relais_parked_key AS p WHERE p.dead_letter_id = relais_dead_letter.id)
