-- What relais reads to know which scripts were applied.
CREATE TABLE IF NOT EXISTS relais_schema (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
