-- The time of a settlement, and whether the destination has waiting rows.
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), EXISTS (SELECT 1 FROM relais_waiting WHERE destination = ?1)
