-- Differs from postgres: SQLite has no functions, so only relais publishes, and a consumer gives every column that
-- has no default.

-- The time at which a version was seen last: clean-up removes those of aggregates that are silent.
ALTER TABLE relais_version ADD COLUMN seen_at TEXT;
UPDATE relais_version SET seen_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');
CREATE INDEX relais_version_age ON relais_version (seen_at);

-- A settlement looks for a change of the same row.
CREATE INDEX relais_adopted_change_row ON relais_adopted_change (adopted_by, adopted_key);
