-- Draws a number, after the rows were set free: fetches start from zero and workers poll. See low_water_mark.rs.
UPDATE relais_bulk_job SET moved = DEFAULT WHERE id = $1
