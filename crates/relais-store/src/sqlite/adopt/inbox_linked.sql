SELECT id FROM relais_inbox WHERE adopted_by = ?1 AND adopted_key = ?2 ORDER BY id DESC LIMIT 1
