-- The newest row of a message gets its result.
UPDATE relais_inbox SET adopted_by = $2::text, adopted_key = $3::text WHERE id = $1
