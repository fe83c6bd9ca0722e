-- The copy of an adopted row by its link; the row itself may have been deleted. Only results that wait are looked up so.
SELECT id FROM relais_inbox WHERE adopted_by = $1 AND adopted_key = $2 ORDER BY id DESC LIMIT 1
