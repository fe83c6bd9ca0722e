INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type, payload, headers,
                           destination, msg_key, next_attempt_at, adopted_by, adopted_key)
SELECT :message_id, :category, :aggregate_type, :aggregate_id, :event_type, :payload, :headers,
       :destination, :msg_key, :next_attempt, :name, :key
FROM (SELECT r.*, row_number() OVER (:order) AS relais_place FROM :source AS r) AS t
WHERE :pending
  AND NOT EXISTS (SELECT FROM relais_outbox AS o
                  WHERE o.message_id = :message_id AND o.destination = :destination
                    AND o.adopted_by = :name AND o.adopted_key = :key)
ORDER BY t.relais_place
