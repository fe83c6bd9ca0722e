-- New rows, in the order of the INSERT. A message that was received before is not copied again.
DECLARE
    relais_copied bigint;
    relais_wanted bigint;
BEGIN
PERFORM set_config('relais.adopted', 'on', TRUE);
:copy
ON CONFLICT (source_system, message_id) DO NOTHING;
GET DIAGNOSTICS relais_copied = ROW_COUNT;
SELECT count(*) INTO relais_wanted FROM relais_new AS t WHERE :pending;
IF relais_copied < relais_wanted THEN
-- A worker links a duplicate with the message that was received before, or handles a row that was inserted again.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, '00000000-0000-0000-0000-000000000000', 'reset' FROM relais_new AS t WHERE :pending;
END IF;
PERFORM set_config('relais.adopted', '', TRUE);
RETURN NULL;
END
