-- As in postgres: results to be written later, of one table, or of all but those that are written.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT o.adopted_by, o.adopted_key, o.message_id, 'unwritten'
FROM relais_outbox AS o
WHERE o.id IN (SELECT value FROM json_each(?1)) AND +o.adopted_by NOT IN (SELECT value FROM json_each(?2))
  AND +o.adopted_by = coalesce(?3, o.adopted_by)
ORDER BY o.id
