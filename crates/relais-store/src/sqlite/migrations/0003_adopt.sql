-- Adopted outbox tables, which only PostgreSQL has yet: the same columns and table, so that the numbers of the
-- scripts mean the same on every database.

-- The adopted table of a copied row, and the primary key of the row there, as text.
ALTER TABLE relais_outbox ADD COLUMN adopted_by TEXT;
ALTER TABLE relais_outbox ADD COLUMN adopted_key TEXT;

-- Rows of adopted tables that a worker compares with their copies.
CREATE TABLE relais_adopted_change (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    adopted_by  TEXT NOT NULL,
    adopted_key TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('reset', 'unwritten')),
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;
