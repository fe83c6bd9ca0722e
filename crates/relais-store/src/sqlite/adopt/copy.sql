INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type, payload, headers,
                           destination, msg_key, next_attempt_at, adopted_by, adopted_key)
SELECT :message_id, :category, :aggregate_type, :aggregate_id, :event_type, :payload, :headers,
       :destination, :msg_key, :next_attempt, :name, :key
