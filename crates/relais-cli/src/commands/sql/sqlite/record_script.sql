INSERT INTO relais_schema (version, name) VALUES (:version, ':name');
