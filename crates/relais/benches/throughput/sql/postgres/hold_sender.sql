-- A long transaction that sent its message early.
BEGIN;
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
VALUES ('Order', 'order-held', 'OrderChanged', 'bench', '{}');
