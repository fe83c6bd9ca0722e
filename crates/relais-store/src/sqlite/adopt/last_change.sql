-- Only SQLite: what a write-back itself adds to the changes is removed after it.
SELECT coalesce(max(id), 0) FROM relais_adopted_change
