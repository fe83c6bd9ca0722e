UPDATE relais_inbox SET payload = ?2 WHERE id = ?1 AND ?2 IS NOT NULL AND payload IS NOT ?2
