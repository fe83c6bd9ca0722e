INSERT INTO relais_outbox (message_id, category, aggregate_type, aggregate_id, event_type, payload,
                           headers, destination, msg_key, causation_id, correlation_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
