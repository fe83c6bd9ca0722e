-- As in postgres: the key stays parked behind the next open dead letter that parks it,
-- if there is one.
UPDATE relais_parked_key
SET dead_letter_id = (
    SELECT d.id FROM relais_dead_letter AS d
    WHERE d.resolved_at IS NULL AND d.origin = relais_parked_key.origin
      AND coalesce(d.destination, '') = relais_parked_key.destination
      AND d.msg_key = relais_parked_key.msg_key AND d.parks_key
    ORDER BY d.parked_at, d.id
    LIMIT 1)
WHERE dead_letter_id = ?1
  AND EXISTS (
    SELECT 1 FROM relais_dead_letter AS d
    WHERE d.resolved_at IS NULL AND d.origin = relais_parked_key.origin
      AND coalesce(d.destination, '') = relais_parked_key.destination
      AND d.msg_key = relais_parked_key.msg_key AND d.parks_key)
