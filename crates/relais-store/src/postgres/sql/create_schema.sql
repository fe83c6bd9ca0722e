-- Which scripts have been applied. Made by the migrator itself, before any script.
CREATE TABLE IF NOT EXISTS relais_schema (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
