-- The results that have waited for more than a minute to be written into an adopted table.
SELECT count(*) FROM relais_adopted_change
WHERE adopted_by = $1 AND kind = 'unwritten' AND created_at < clock_timestamp() - INTERVAL '1 minute'
