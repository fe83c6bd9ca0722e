INSERT INTO blocks (id, family) VALUES (?1, ?2)
