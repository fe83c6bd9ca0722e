SELECT id, adopted_by, adopted_key, message_id, kind
FROM relais_adopted_change
WHERE id > $1 AND adopted_by = ANY ($2::text[])
ORDER BY id
LIMIT $3
