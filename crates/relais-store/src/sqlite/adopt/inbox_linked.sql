-- As in postgres: the copy of a handler has the result, not the message that it was made from.
SELECT id FROM relais_inbox WHERE adopted_by = ?1 AND adopted_key = ?2
ORDER BY instr(inbox, '@') > 0 DESC, id DESC LIMIT 1
