-- New rows, in the order of the INSERT. A message that was received before is not copied again.
DECLARE
    relais_ids bigint[];
    relais_wanted bigint;
BEGIN
PERFORM set_config('relais.adopted', 'on', TRUE);
WITH relais_copied AS (
:copy
ON CONFLICT (source_system, message_id) DO NOTHING RETURNING id)
SELECT coalesce(array_agg(id), '{}') INTO relais_ids FROM relais_copied;
SELECT count(*) INTO relais_wanted FROM relais_new AS t WHERE :pending;
IF cardinality(relais_ids) < relais_wanted THEN
-- A worker links a duplicate with the message that was received before, or handles a row that was inserted again. The
-- rows that this statement has copied are neither.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, '00000000-0000-0000-0000-000000000000', 'reset' FROM relais_new AS t
WHERE :pending
  AND NOT EXISTS (SELECT FROM relais_inbox AS o JOIN unnest(relais_ids) AS c (id) ON c.id = o.id
                  WHERE o.adopted_key = :key);
END IF;
PERFORM set_config('relais.adopted', '', TRUE);
RETURN NULL;
END
