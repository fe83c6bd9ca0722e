-- Which scripts have been applied. Made by the migrator itself, before the first script. Programs of
-- all versions read it, so it never changes. `needs` is the oldest program, by the last script it
-- knows, that can work with the tables after the script.
CREATE TABLE IF NOT EXISTS relais_schema (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    needs      bigint NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
