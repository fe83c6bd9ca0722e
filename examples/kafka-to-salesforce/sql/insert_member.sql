INSERT INTO members (id, first_name, last_name, email, family) VALUES (?1, ?2, ?3, ?4, ?5)
