-- Payloads that are written now are not validated: one that is no JSON becomes a dead letter.
SELECT set_config('relais.adopted', 'on', TRUE)
