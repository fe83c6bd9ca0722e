-- Differs from postgres: the time is text.
CREATE TABLE IF NOT EXISTS relais_schema (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    needs      INTEGER NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT
