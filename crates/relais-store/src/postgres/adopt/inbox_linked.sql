-- The copy of an adopted row by its link; the row itself may have been deleted. Only results that wait are looked up so.
-- The copy of a handler has the result, not the message that it was made from.
SELECT id FROM relais_inbox WHERE adopted_by = $1 AND adopted_key = $2
ORDER BY strpos(inbox, '@') > 0 DESC, id DESC LIMIT 1
