INSERT INTO relais_schema (version, name) VALUES ($1, $2)
