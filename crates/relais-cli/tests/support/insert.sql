-- What a service in any language writes; everything else has a default.
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
VALUES ('Order', ?1, 'OrderPlaced', ?2, '{"by":"hand"}')
