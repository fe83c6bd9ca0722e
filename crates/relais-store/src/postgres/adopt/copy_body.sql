-- New rows, in the order of the INSERT. The first statement has one possible plan, so that a session cannot keep one
-- that reads all of relais_outbox. With `relais.adopted` the payload is not validated. It is no setting of the function:
-- only a superuser may create a function with it.
DECLARE
    relais_ids bigint[];
    relais_wanted bigint;
BEGIN
PERFORM set_config('relais.adopted', 'on', TRUE);
WITH relais_copied AS (
:copy
ON CONFLICT (message_id, destination) DO NOTHING RETURNING id)
SELECT coalesce(array_agg(id), '{}') INTO relais_ids FROM relais_copied;
SELECT count(*) INTO relais_wanted FROM relais_new AS t WHERE :pending;
IF cardinality(relais_ids) < relais_wanted THEN
-- A row that was copied before this statement is requested again. An id that another message has fails the INSERT.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT :name, :key, o.message_id, 'reset'
FROM relais_new AS t
JOIN relais_outbox AS o ON o.message_id = :message_id AND o.destination = :destination
WHERE :pending AND o.adopted_by = :name AND o.adopted_key = :key
  AND NOT EXISTS (SELECT FROM unnest(relais_ids) AS c (id) WHERE c.id = o.id);
:copy_rest;
END IF;
PERFORM set_config('relais.adopted', '', TRUE);
RETURN NULL;
END
