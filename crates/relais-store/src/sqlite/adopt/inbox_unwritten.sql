-- As unwritten, of received messages.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT o.adopted_by, o.adopted_key, '00000000-0000-0000-0000-000000000000', 'unwritten'
FROM relais_inbox AS o
WHERE o.id IN (SELECT value FROM json_each(?1)) AND +o.adopted_by NOT IN (SELECT value FROM json_each(?2))
  AND +o.adopted_by = coalesce(?3, o.adopted_by)
ORDER BY o.id
