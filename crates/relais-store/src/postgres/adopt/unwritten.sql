-- Results to be written later: of one table, or of all but those that are written.
INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
SELECT o.adopted_by, o.adopted_key, o.message_id, 'unwritten'
FROM relais_outbox AS o
WHERE o.id = ANY ($1::bigint[]) AND o.adopted_by <> ALL ($2::text[])
  AND o.adopted_by = coalesce($3, o.adopted_by)
ORDER BY o.id
