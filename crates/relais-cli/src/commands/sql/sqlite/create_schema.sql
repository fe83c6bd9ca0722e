-- What relais reads to know which scripts were applied. Differs from postgres: the time is text.
CREATE TABLE IF NOT EXISTS relais_schema (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;
