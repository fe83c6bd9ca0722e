-- The table of the service in the examples; `relais migrate` makes those of relais.
CREATE TABLE orders (id TEXT PRIMARY KEY, total BIGINT NOT NULL);
