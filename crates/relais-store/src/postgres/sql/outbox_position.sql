-- Only a database with several writers has this file: SQLite reads the position in the fetch. 0 for a destination
-- without one.
SELECT coalesce((SELECT position FROM relais_outbox_position WHERE destination = $1), 0)
