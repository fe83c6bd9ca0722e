-- The position of a destination, whether it has waiting rows and parked keys, and the highest id drawn.
SELECT coalesce((SELECT position FROM relais_outbox_position WHERE destination = ?1), 0),
       EXISTS (SELECT 1 FROM relais_waiting WHERE destination = ?1),
       EXISTS (SELECT 1 FROM relais_parked_key WHERE origin = 'outbox' AND destination = ?1),
       (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'relais_outbox')
