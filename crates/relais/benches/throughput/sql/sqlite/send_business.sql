INSERT INTO business (order_id, note) VALUES (?1, ?2)
