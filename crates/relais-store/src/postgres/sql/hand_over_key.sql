-- The key stays parked behind the next open dead letter that parks it, if there is one.
WITH next AS MATERIALIZED (
    SELECT id FROM relais_dead_letter
    WHERE resolved_at IS NULL AND hashtextextended(msg_key, 0) = hashtextextended($3 COLLATE "C", 0)
      AND msg_key = $3 AND origin = $1 AND coalesce(destination, '') = $2
      AND parks_key
    ORDER BY parked_at, id
    LIMIT 1)
UPDATE relais_parked_key AS p
SET dead_letter_id = next.id
FROM next
WHERE p.origin = $1 AND p.destination = $2 AND p.key_hash = md5($3)
